"""The body: joints, rotations, kinematics, mesh."""
