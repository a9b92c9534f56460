"""The programs that run on the graphics card, or on llvmpipe in its place (GLSL 3.30)."""

_HEAD = """#version 330 core
layout(std140) uniform Scene {
    mat4 clip;          // world to the picture, row 0 at the bottom of clip space
    mat4 sun_clip;      // world to the sun's depth map
    vec4 eye;           // w: how far one sees [m]
    vec4 sun;           // towards it; w: a texel of its map [m]
    vec4 along_x;       // dot with (p, 1): where p is along the floor's squares [m]
    vec4 along_y;
    vec4 above;         //                  how high above the floor [m]
    vec4 shadow_map;    // corner and 1 / side of the map of shadows on the floor
};
"""

_BONES = """
layout(std140) uniform Bones { vec4 rows[66]; };   // three rows a joint
"""

SKIN = (
    _HEAD.partition("layout")[0]
    + _BONES
    + """
in vec3 in_rest;
in vec3 in_normal;
in vec4 in_joints;
in vec4 in_weights;
out vec3 position;
out vec3 normal;
void main() {
    vec4 x = vec4(0.0), y = vec4(0.0), z = vec4(0.0);
    for (int i = 0; i < 4; i++) {
        int row = 3 * int(in_joints[i]);
        x += in_weights[i] * rows[row];
        y += in_weights[i] * rows[row + 1];
        z += in_weights[i] * rows[row + 2];
    }
    vec4 p = vec4(in_rest, 1.0);
    position = vec3(dot(x, p), dot(y, p), dot(z, p));
    normal = normalize(vec3(dot(x.xyz, in_normal), dot(y.xyz, in_normal), dot(z.xyz, in_normal)));
}
"""
)

_SHIP = """
#ifdef SHADOW
uniform mat4 onto;      // world to the sun's depth map, or along the sun's rays onto the floor
#endif
void ship(vec3 p, float lift) {
#ifdef SHADOW
    gl_Position = onto * vec4(p, 1.0);
#else
    gl_Position = clip * vec4(p, 1.0);
    if (lift > 0.0) {
        vec4 nearer = clip * vec4(p + lift * normalize(eye.xyz - p), 1.0);
        gl_Position.z = nearer.z / nearer.w * gl_Position.w;
    }
#endif
}
"""

BODY_VERTEX = """
in vec3 in_position;
in vec3 in_normal;
in vec3 in_rest;
out vec3 position;
out vec3 normal;
out vec3 rest;
void main() {
    position = in_position;
    normal = in_normal;
    rest = in_rest;
    ship(in_position, 0.0);
}
"""

PART_VERTEX = """
in vec2 in_around;      // cosine and sine about the axis
in vec2 in_along;       // share of the way along an end's cap, and which end
in vec3 in_near;
in mat3 in_frame;       // from round axes to the world
in mat3 in_normals;
in vec3 in_shape;       // both radii and the length [m]
in vec3 in_color;
in float in_lift;
out vec3 position;
out vec3 normal;
out vec3 rest;
void main() {
    float step_ = in_shape.x - in_shape.y, l = max(in_shape.z, 1e-6);
    float tilt = asin(clamp(step_ / l, -1.0, 1.0)), top = 1.5707963;
    float latitude = in_along.y < 0.5 ? mix(-top, tilt, in_along.x) : mix(tilt, top, in_along.x);
    vec3 n = vec3(cos(latitude) * in_around, sin(latitude));
    float r = in_along.y < 0.5 ? in_shape.x : in_shape.y;
    position = in_near + in_frame * (n * r + vec3(0.0, 0.0, in_along.y * in_shape.z));
    normal = normalize(in_normals * n);
    rest = in_color;
    ship(position, in_lift);
}
"""

FLOOR_VERTEX = """
out vec3 position;
void main() {
    // A square under the eye, so large that the fog hides its rim.
    vec2 corner = 4.0 * eye.w * vec2(gl_VertexID % 2 * 2 - 1, gl_VertexID / 2 * 2 - 1);
    float height = dot(above, vec4(eye.xyz, 1.0));
    position = eye.xyz - height * above.xyz + corner.x * along_x.xyz + corner.y * along_y.xyz;
    gl_Position = clip * vec4(position, 1.0);
}
"""

SKY_VERTEX = """
uniform mat4 unclip;
out vec3 direction;
void main() {
    vec2 p = vec2(gl_VertexID % 2 * 4 - 1, gl_VertexID / 2 * 4 - 1);
    gl_Position = vec4(p, 1.0, 1.0);
    vec4 far = unclip * vec4(p, 1.0, 1.0);
    direction = far.xyz / far.w - eye.xyz;
}
"""

SHADOW_FRAGMENT = """#version 330 core
out float dark;
void main() { dark = 1.0; }
"""

_SKY = """
out vec4 color;

// The sky is palest at the horizon, where the floor fades into it.
vec3 sky(vec3 direction) {
    float up = clamp(normalize(direction).z, 0.0, 1.0);
    return mix(vec3(0.955, 0.965, 0.975), vec3(0.74, 0.82, 0.90), 1.0 - exp(-2.2 * up));
}

"""

_SUNLIGHT = """
uniform sampler2DShadow sun_map;

// How much of the sun reaches a point: nine looks into its depth map, each of which blends four texels.
float sunlight(vec3 p, float reach) {
    vec4 q = sun_clip * vec4(p, 1.0);
    vec3 at = q.xyz / q.w * 0.5 + 0.5;
    if (any(lessThan(at, vec3(0.02))) || any(greaterThan(at, vec3(0.98)))) return 1.0;
    vec2 d = reach / vec2(textureSize(sun_map, 0));
    float sum = 4.0 * texture(sun_map, at);
    sum += 2.0 * (texture(sun_map, at + vec3(d.x, 0, 0)) + texture(sun_map, at - vec3(d.x, 0, 0))
        + texture(sun_map, at + vec3(0, d.y, 0)) + texture(sun_map, at - vec3(0, d.y, 0)));
    sum += texture(sun_map, at + vec3(d, 0)) + texture(sun_map, at - vec3(d, 0))
        + texture(sun_map, at + vec3(d.x, -d.y, 0)) + texture(sun_map, at + vec3(-d.x, d.y, 0));
    return sum / 16.0;
}
"""

_SURFACE = """
in vec3 position;
in vec3 normal;
uniform float opacity;
out vec4 color;

void main() {
    vec3 n = normalize(normal), to_eye = normalize(eye.xyz - position);
    vec3 albedo = paint();
    float facing = dot(n, sun.xyz);
    float lit = facing > 0.0 ? facing * sunlight(position + 2.5 * sun.w * n, 1.3) : 0.0;
    // From above comes the sky, from below what the floor throws back, less of it close to the floor.
    float up = 0.5 + 0.5 * dot(n, above.xyz);
    float open = mix(0.55 + 0.45 * clamp(dot(above, vec4(position, 1.0)) / 0.6, 0.0, 1.0), 1.0, up);
    vec3 ambient = mix(vec3(0.40, 0.38, 0.36), vec3(0.62, 0.66, 0.72), up) * open;
    float wrap = clamp(0.25 + 0.75 * facing, 0.0, 1.0) * 0.18;
    float rim = pow(1.0 - clamp(dot(n, to_eye), 0.0, 1.0), 3.0);
    float gloss = pow(clamp(dot(n, normalize(to_eye + sun.xyz)), 0.0, 1.0), 24.0) * step(0.0, facing);
    vec3 light = ambient + vec3(0.80, 0.76, 0.70) * (0.85 * lit + wrap);
    vec3 linear = albedo * albedo * light + rim * 0.10 * ambient + gloss * 0.05 * lit;
    color = vec4(sqrt(linear), opacity);
}
"""

FLAT_PAINT = """
in vec3 rest;
vec3 paint() { return rest; }
"""

CLOTHES_PAINT = """
in vec3 rest;
uniform vec3 shirt, trousers, skin, hair;
uniform vec4 heights;   // of the ankles, the waist, the collar and the hairline [m]
uniform vec2 sleeve;    // where sleeves end, and the head's middle from front to back [m]

float over(float edge, float at) {
    float soft = max(fwidth(at), 1e-4);
    return smoothstep(edge - soft, edge + soft, at);
}

vec3 paint() {
    float side = abs(rest.x);
    // A round neck, lower in front.
    float collar = heights.z - 0.028 - 0.35 * clamp(rest.z - sleeve.y + 0.03, 0.0, 0.10) + 6.0 * side * side;
    vec3 c = mix(skin, trousers, over(heights.x, rest.y));
    c = mix(c, shirt, over(heights.y, rest.y));
    c = mix(c, skin, max(over(sleeve.x, side), over(collar, rest.y)));
    float line = heights.w + 0.75 * (rest.z - sleeve.y);
    return mix(c, hair, over(line, rest.y) * over(collar, rest.y) * (1.0 - over(0.2, side)));
}
"""

FLOOR_FRAGMENT = """
in vec3 position;
uniform sampler2D shadows;      // red: of the sky, green: of the sun

// The mean of a wave of squares of half a metre over an interval of a width (a box filter).
vec2 waves(vec2 at, vec2 width) {
    vec2 a = at + 0.5 * width, b = at - 0.5 * width;
    return (abs(fract(a) - 0.5) - abs(fract(b) - 0.5)) / width;
}

void main() {
    vec4 p = vec4(position, 1.0);
    vec3 ray = position - eye.xyz;
    float far = length(ray);
    float clear = exp(-far * far / (eye.w * eye.w));
    vec3 back = sky(ray);
    if (clear < 0.004) { color = vec4(back, 1.0); return; }
    vec2 at = vec2(dot(along_x, p), dot(along_y, p));
    vec2 width = max(fwidth(at), 1e-4);
    vec2 wave = waves(at, width);
    vec3 tile = mix(vec3(0.775, 0.825, 0.840), vec3(0.905, 0.930, 0.935), 0.5 + 0.5 * wave.x * wave.y);
    vec2 dark = texture(shadows, (at - shadow_map.xy) * shadow_map.z).rg;
    vec3 light = vec3(0.60, 0.63, 0.68) * (1.0 - 0.80 * dark.r) + vec3(0.42, 0.40, 0.37) * (1.0 - dark.g) * (1.0 - 0.25 * dark.r);
    color = vec4(mix(back, sqrt(tile * tile * light), clear), 1.0);
}
"""

SKY_FRAGMENT = """
in vec3 direction;
void main() { color = vec4(sky(direction), 1.0); }
"""


def vertex(source: str, *, shadow: bool = False) -> str:
    """Complete a vertex shader, for the picture or for a map of shadows."""
    return _HEAD.replace("core\n", "core\n#define SHADOW\n" if shadow else "core\n") + _SHIP + source


def fragment(source: str) -> str:
    """Complete the fragment shader of the floor or the sky."""
    return _HEAD + _SKY + source


def surface(paint: str) -> str:
    """Complete a fragment shader with what a surface is painted with."""
    return _HEAD + _SUNLIGHT + paint + _SURFACE
