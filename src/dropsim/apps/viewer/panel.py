"""The control panel; each control sends a command to the simulation."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dropsim.apps.viewer.downloads import KINDS
from dropsim.apps.viewer.editing import editing
from dropsim.apps.viewer.figures import Look
from dropsim.apps.viewer.hands import showing
from dropsim.apps.viewer.loop import Command, Commands, Status
from dropsim.apps.viewer.session import MAX_PEOPLE, MAX_SPEED, MAX_TILT, Session, Switches
from dropsim.apps.viewer.shot import Shot
from dropsim.apps.viewer.steering import GoTo, Walk
from dropsim.priors.prior import Prior
from dropsim.scene import DIRECTIONS
from dropsim.scene.files import Setup
from dropsim.scene.scenarios import SCENARIOS

if TYPE_CHECKING:
    import viser

    from dropsim.apps.viewer.app import Browser

PLOT_SECONDS = 10.0
PLOT_POINTS = 150
ENERGIES = {
    "kinematic": "#2a7fb8",
    "momentum": "#e2843e",
    "contact": "#3a9d5d",
    "range_of_motion": "#b0539e",
    "rigidity": "#8a8f98",
}
"""Plotted, with their colours."""
WRENCH = {"root wrench": "#c8373a", "root wrench left": "#2a7fb8"}
PACES = {"1": 1.0, "1/2": 0.5, "1/4": 0.25, "1/10": 0.1}
SQUARE_CENTIMETRES = 1e4
"""In a square metre. The plots use cm^2: the axis has no room for small numbers."""
STARTS = ("stand", "walk", "run", "jump", "turn", "crouch", "get up", "dance", "sport", "ground")
"""Motions that some prior can start in."""
FREE = "somebody alone"
"""Name of the scene in which nothing happens by itself."""
FOLLOW_AFTER = 1.0
"""So long after somebody used a control, the controls show again what holds [s]: it may wait in the queue before."""
GO, BOX, ICE, TAKE = "the person goes there", "puts a box", "paints ice", "takes away"
"""What a click on the floor does."""
TINY = 0.01
"""Smallest energy drawn [cm^2]: zero has no logarithm."""


class Panel:
    """All controls, in tabs."""

    def __init__(self, server: "viser.ViserServer", commands: Commands, session: Session, browser: "Browser") -> None:
        self._gui, self._commands, self._browser, self._session = server.gui, commands, browser, session
        self._used = 0.0
        """When somebody used a control last [s]."""
        self.look = Look()
        self._scenario = session.name if session.name in SCENARIOS else FREE
        self._paused = False
        self._plotted: list[tuple[float, dict[str, float]]] = []
        self._icon = _icons()
        gui = server.gui
        gui.configure_theme(
            show_logo=False, show_share_button=False, brand_color=(42, 127, 184), control_width="medium"
        )
        gui.set_panel_label("dropsim")
        self._status = gui.add_markdown("Starting.")
        # The page reads it, for its title and address.
        self._scene = gui.add_text("dropsim scene", session.name if session.name in SCENARIOS else "", visible=False)
        self._add_time(session)
        tabs = gui.add_tab_group()
        with tabs.add_tab("Scene"):
            self._add_scenarios()
            self._add_people(session)
            self._add_walk()
        with tabs.add_tab("Disturb"):
            self._add_push()
            self._add_ball()
            self._add_ground()
            self._add_stumble()
        with tabs.add_tab("World"):
            self._add_objects()
            self._add_energies()
            self._add_look()
        with tabs.add_tab("Plots"):
            self._add_plots()
        with tabs.add_tab("Save"):
            self._add_save(session)

    def _ask(self, handle: Any, command: Callable[[Any], Command]) -> None:  # noqa: ANN401, viser's handles share no type
        """Send the command that `command` makes of the event whenever a client uses the control."""

        async def asked(event: Any) -> None:  # noqa: ANN401
            # Events without a client come from values that the server set.
            if event.client is not None:
                self._used = time.monotonic()
                self._commands.put(command(event))

        _register(handle, asked)

    def _add_time(self, session: Session) -> None:
        gui = self._gui
        with gui.add_folder("Time"):
            self._pause = gui.add_button(
                "Pause", icon=self._icon.PLAYER_PAUSE, hint="Stop, or go on from the newest frame."
            )
            self._ask(self._pause, lambda _: lambda s: s.pause(not s.paused))
            row = gui.add_button_group(
                "Once", ("Step", "Restart"), hint="One frame; or again with the same random numbers."
            )
            self._ask(row, lambda e: (lambda s: s.step()) if e.target.value == "Step" else _restarted)
            pace = gui.add_dropdown("Speed", tuple(PACES), initial_value="1", hint="Slow motion.")
            self._ask(pace, lambda e: lambda s, value=e.target.value: s.slow(PACES.get(value, 1.0)))
            self._timeline = gui.add_slider(
                "Look back [s]",
                min=-session.seconds,
                max=0.0,
                step=0.1,
                initial_value=0.0,
                hint="Stops, and shows what was.",
            )
            self._ask(self._timeline, lambda e: lambda s, value=e.target.value: s.scrub(value))
            whole = (-session.seconds, 0.0)
            self._cut = gui.add_multi_slider(
                "Cut [s]",
                min=whole[0],
                max=0.0,
                step=0.1,
                initial_value=whole,
                min_range=0.1,
                hint="Stops. Save writes what is between.",
            )
            self._ends = whole

            def cut(event: Any) -> Command:  # noqa: ANN401
                ends = (float(event.target.value[0]), float(event.target.value[1]))
                moved = next((end for end, was in zip(ends, self._ends, strict=True) if end != was), ends[1])
                self._ends = ends
                return lambda s: (s.cut(*ends), s.scrub(moved))

            self._ask(self._cut, cut)

    def _add_push(self) -> None:
        gui = self._gui
        with gui.add_folder("Push"):
            gui.add_markdown("Drag a limb with the mouse, or push the chest for 0.3 s. Press **?** for the keys.")
            self._drag = gui.add_slider(
                "Drag [N]", min=50, max=1000, step=10, initial_value=400, hint="Largest force of the mouse."
            )
            force = gui.add_slider("Force [N]", min=50, max=800, step=10, initial_value=250)
            ways = gui.add_button_group("Toward", tuple(way.capitalize() for way in DIRECTIONS))

            def pushed(event: Any) -> Command:  # noqa: ANN401
                way, newtons = str(event.target.value).lower(), float(force.value)
                return lambda s: s.push(way, newtons)

            self._ask(ways, pushed)

    @property
    def largest_drag(self) -> float:
        """Largest force of a mouse drag [N]."""
        return min(max(float(self._drag.value), 0.0), 1000.0)

    def _add_ball(self) -> None:
        gui = self._gui
        with gui.add_folder("Ball"):
            self.ball_speed = gui.add_slider("Speed [m/s]", min=3, max=15, step=0.5, initial_value=8)
            self.ball_mass = gui.add_slider("Mass [kg]", min=0.5, max=15, step=0.5, initial_value=3)
            throw = gui.add_button(
                "Throw",
                icon=self._icon.BALL_VOLLEYBALL,
                hint="From where you look, at the chest. Or click on the body to aim.",
            )
            self._ask(throw, lambda e: self.throwing(self._browser.eye(e.client)))

    def throwing(self, origin: Any, joint: str = "spine3", person: int = 0) -> Command:  # noqa: ANN401
        """Command that throws a ball with the sliders' speed and mass."""
        speed, mass = float(self.ball_speed.value), float(self.ball_mass.value)
        return lambda s: s.throw(origin, joint=joint, person=person, speed=speed, mass=mass)

    def _add_ground(self) -> None:
        gui = self._gui
        with gui.add_folder("Ground"):
            self._roll = roll = gui.add_slider(
                "Roll [deg]", min=-MAX_TILT, max=MAX_TILT, step=1, initial_value=0, hint="Positive: down to +x."
            )
            self._pitch = pitch = gui.add_slider(
                "Pitch [deg]", min=-MAX_TILT, max=MAX_TILT, step=1, initial_value=0, hint="Positive: up along +y."
            )

            def tilted(_: object) -> Command:
                angles = float(roll.value), float(pitch.value)
                return lambda s: s.tilt_to(*angles)

            for handle in (roll, pitch):
                self._ask(handle, tilted)

    def _add_stumble(self) -> None:
        gui = self._gui
        with gui.add_folder("Stumble"):
            trip = gui.add_button_group("Trip", ("Left foot", "Right foot"))
            self._ask(trip, lambda e: lambda s, foot=e.target.value: s.trip(str(foot).removesuffix(" foot").lower()))
            self._stiff = stiff = gui.add_checkbox("Stiff right knee", initial_value=False)
            self._ask(stiff, lambda e: lambda s, value=e.target.value: s.stiffen(value))

    def _add_scenarios(self) -> None:
        gui = self._gui
        with gui.add_folder("Scenario"):
            self._shown = gui.add_dropdown(
                "Show",
                (FREE, *SCENARIOS),
                initial_value=self._scenario,
                hint="Loads it and starts it. G shows pictures.",
            )
            self._about = gui.add_markdown(SCENARIOS[self._scenario].description if self._scenario in SCENARIOS else "")
            self._ask(self._shown, lambda e: showing(SCENARIOS.get(str(e.target.value), Setup())))
            self._ask(
                gui.add_button("Replay", icon=self._icon.RELOAD, hint="Again from the start."), lambda _: _restarted
            )
            edit = gui.add_button("Edit", icon=self._icon.PENCIL, hint="The scene as text: change it and start it.")
            self._ask(edit, lambda e: editing(e.client, self._commands))

    def _add_people(self, session: Session) -> None:
        gui = self._gui
        doing, starts = session.scene.people[0].start, starts_of(session.simulator.prior)
        with gui.add_folder("Start"):
            self._start = start = gui.add_dropdown(
                "Motion", starts, initial_value=doing if doing in starts else starts[0]
            )
            # The first is the current one.
            names = tuple(session.priors) or (session.simulator.prior.name,)
            self._prior = prior = gui.add_dropdown(
                "Prior",
                names,
                disabled=len(names) < 2,
                hint="The bank or model that people move by. Changing it restarts.",
            )
            self._ask(prior, lambda e: lambda s, name=str(e.target.value): s.use(name))
            self._ask(start, lambda e: lambda s, value=e.target.value: s.begin(start=value))
            self._people = people = gui.add_slider(
                "People",
                min=1,
                max=max(MAX_PEOPLE, len(session.scene.people)),
                step=1,
                initial_value=len(session.scene.people),
            )
            self._ask(people, lambda e: lambda s, value=e.target.value: s.begin(people=int(value)))
            self._seed = seed = gui.add_number(
                "Seed", initial_value=session.seed, min=0, max=2**31, step=1, hint="Other random numbers."
            )
            self._ask(seed, lambda e: lambda s, value=e.target.value: s.begin(seed=int(value)))
            self._ghost = ghost = gui.add_checkbox(
                "Ghost", initial_value=session.ghost, hint="The same person, undisturbed."
            )
            self._ask(ghost, lambda e: lambda s, value=e.target.value: s.show_ghost(value))

    def _add_walk(self) -> None:
        gui = self._gui
        with gui.add_folder("Walk"):
            led = gui.add_checkbox("Lead them", initial_value=False, hint="People plan ahead to move at this velocity.")
            speed = gui.add_slider("Speed [m/s]", min=0.0, max=MAX_SPEED, step=0.1, initial_value=1.2)
            way = gui.add_slider(
                "Way [deg]",
                min=-180,
                max=180,
                step=5,
                initial_value=0,
                hint="Left is positive; 0 is ahead at the start.",
            )

            def walk(_: object) -> Command:
                goal = Walk(float(speed.value), float(way.value)) if led.value else None
                return lambda s: s.steer(goal)

            for handle in (led, speed, way):
                self._ask(handle, walk)

    def _add_objects(self) -> None:
        gui = self._gui
        with gui.add_folder("Boxes and ice"):
            self._click = gui.add_dropdown(
                "A click",
                (GO, BOX, ICE, TAKE),
                initial_value=GO,
                hint="On the floor, on a box or on ice. Boxes can be dragged at any time.",
            )
            self._box_mass = gui.add_slider("Box [kg]", min=1, max=50, step=1, initial_value=8)
            self._box_size = gui.add_slider("Box [m]", min=0.2, max=0.8, step=0.05, initial_value=0.4)
            self._ice_size = gui.add_slider("Ice [m]", min=0.5, max=3.0, step=0.1, initial_value=1.0)
            empty = gui.add_button(
                "Take all away", icon=self._icon.TRASH, hint="Every loose box and every patch of ice."
            )
            self._ask(empty, lambda _: lambda s: s.take_all_away())

    def clicking(self, origin: Sequence[float], way: Sequence[float], person: int, speed: float) -> Command:
        """Command of a click on the world, along a ray; `person` is whom the client steers, at a speed [m/s]."""
        what, size, mass, ice = (
            self._click.value,
            float(self._box_size.value),
            float(self._box_mass.value),
            float(self._ice_size.value),
        )

        def click(session: Session) -> None:
            if what == TAKE:
                session.take_away(origin, way)
            elif (place := session.pointed_at(origin, way)) is None:
                return
            elif what == BOX:
                session.put_box(place, size=size, mass=mass)
            elif what == ICE:
                session.paint_ice(place, size=ice)
            else:
                session.steer(GoTo(*place[:2], speed), person=person)

        return click

    def _add_energies(self) -> None:
        gui = self._gui
        with gui.add_folder("Energies"):
            names = {
                "contact": "Contact",
                "range_of_motion": "Range of motion",
                "kinematic": "Motion prior",
                "correct": "Correction",
            }
            boxes = {name: gui.add_checkbox(label, initial_value=True) for name, label in names.items()}

            def switched(_: object) -> Command:
                switches = Switches(**{name: bool(box.value) for name, box in boxes.items()})
                return lambda s: s.switch(switches)

            for box in boxes.values():
                self._ask(box, switched)

    def _add_look(self) -> None:
        gui = self._gui
        with gui.add_folder("Look", expand_by_default=False):
            names = {
                "skin": "Skin",
                "contact_forces": "Contact forces",
                "external_forces": "External forces",
                "follow": "Follow",
            }
            self._look = {name: gui.add_checkbox(label, initial_value=True) for name, label in names.items()}

            async def changed(event: Any) -> None:  # noqa: ANN401
                del event
                self.look = Look(**{name: bool(box.value) for name, box in self._look.items()})

            for box in self._look.values():
                _register(box, changed)

    def toggle_follow(self) -> None:
        """Let the view go along with the people, or stay."""
        self._look["follow"].value = not self._look["follow"].value

    def _add_plots(self) -> None:
        self._energies = self._plot("Energies, first person [cm²]", ENERGIES, log=True)
        self._wrench = self._plot("Root wrench before and after correction [body weights]", WRENCH, log=False)

    def _plot(self, title: str, lines: dict[str, str], *, log: bool) -> Any:  # noqa: ANN401
        empty = tuple(np.zeros(2) for _ in range(1 + len(lines)))
        series: Any = (
            {"label": "s"},
            *({"label": name, "stroke": color, "width": 1.5} for name, color in lines.items()),
        )
        scales: Any = {"x": {"time": False}, "y": {"distr": 3, "log": 10} if log else {"auto": True}}
        self._gui.add_markdown(f"**{title}**")
        return self._gui.add_uplot(empty, series, scales=scales, height=240)

    def _add_save(self, session: Session) -> None:
        gui = self._gui
        gui.add_markdown(f"The last {session.seconds:g} s at most, or what *Time, Cut* has chosen, as")
        for kind in KINDS:
            label = {"npz": "npz (AMASS)", "toml": "Scene (TOML), from its start"}.get(kind, kind.upper())
            button = gui.add_button(label, icon=self._icon.DOWNLOAD)

            async def saved(event: Any, kind: str = kind) -> None:  # noqa: ANN401
                if event.client is not None:
                    self._browser.save(event.client, kind)

            _register(button, saved)
        with gui.add_folder("Live link"):
            live = gui.add_checkbox(
                "Stream by VMC", initial_value=False, hint="To Unity, Unreal, Blender or Godot, as they move."
            )
            self._ask(live, lambda e: lambda _, on=bool(e.target.value): self._browser.stream(on))

    def remember(self, shot: Shot) -> None:
        """Keep a frame's values for the plots; going back in time drops later ones."""
        if self._plotted and shot.time < self._plotted[-1][0]:
            self._plotted = [row for row in self._plotted if row[0] < shot.time] if shot.frame > 1 else []
        if shot.values and (not self._plotted or shot.time > self._plotted[-1][0]):
            self._plotted.append((shot.time, dict(shot.values)))
            if self._plotted[0][0] < shot.time - 1.5 * PLOT_SECONDS:
                self._plotted = [row for row in self._plotted if row[0] >= shot.time - PLOT_SECONDS]

    def plot(self) -> None:
        rows = self._plotted[:: max(1, len(self._plotted) // PLOT_POINTS)]
        if len(rows) < 2:
            return
        times = np.array([time for time, _ in rows])
        for handle, lines, unit, least in (
            (self._energies, ENERGIES, SQUARE_CENTIMETRES, TINY), (self._wrench, WRENCH, 1.0, 0.0),
        ):  # fmt: skip
            handle.data = (
                times,
                *(np.array([max(unit * values.get(name, 0.0), least) for _, values in rows]) for name in lines),
            )

    def tell(self, shot: Shot, status: Status) -> None:
        """Update the status line."""
        share = 100 * status.late / max(1, status.frames)
        self._status.content = f"**{shot.time:.1f} s** · late frames {share:.1f} % · watching {status.clients}"
        if status.paused != self._paused:
            self._paused = status.paused
            self._pause.label = "Play" if status.paused else "Pause"
            self._pause.icon = self._icon.PLAYER_PLAY if status.paused else self._icon.PLAYER_PAUSE
        if time.monotonic() - self._used > FOLLOW_AFTER:
            self._follow(status.paused)

    def _follow(self, paused: bool) -> None:
        """Let the controls show what holds: a scene that was loaded has its own people, start, seed and ground."""
        session = self._session
        name = session.name if session.name in SCENARIOS else ""
        if self._scene.value != name:
            self._about.content = SCENARIOS[name].description if name else ""
        if session.prior_name not in ("", self._prior.value):
            self._start.options = starts_of(session.simulator.prior)
        doing = session.scene.people[0].start
        wanted: list[Any] = [
            (self._scene, name), (self._shown, name or FREE), (self._seed, session.seed), (self._ghost, session.ghost),
            (self._stiff, session.stiff), (self._roll, session.tilt[0]), (self._pitch, session.tilt[1]),
            (self._prior, session.prior_name or self._prior.value),
            (self._people, min(len(session.scene.people), int(self._people.max))),
            (self._start, doing if doing in self._start.options else self._start.value),
            *(() if paused else ((self._timeline, 0.0), (self._cut, (float(self._cut.min), 0.0)))),
        ]  # fmt: skip
        for handle, value in wanted:
            if handle.value != value:
                handle.value = value
        if not paused:
            self._ends = (float(self._cut.min), 0.0)


def _icons() -> "type[viser.Icon]":
    """Icons of viser, imported late."""
    from viser import Icon

    return Icon


def starts_of(prior: Prior) -> tuple[str, ...]:
    """Motions that people can start in with a prior."""
    found = []
    for name in STARTS:
        with contextlib.suppress(ValueError):
            prior.start(name)
            found.append(name)
    return tuple(found) or ("recording",)


def _restarted(session: Session) -> None:
    session.restart()


def _register(handle: Any, callback: Callable[[Any], Awaitable[None]]) -> None:  # noqa: ANN401
    """Listen to a button's clicks or another control's updates."""
    (handle.on_click if hasattr(handle, "on_click") else handle.on_update)(callback)
