"""The control panel, where each control sends a command of the table to the simulation, and the scene as text."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dropsim.apps.outputs import KINDS
from dropsim.apps.viewer.commands import BOX, GO, MAX_PEOPLE, MAX_SPEED, MAX_TILT, PAINT, TAKE, can_start, do
from dropsim.apps.viewer.figures import Look
from dropsim.apps.viewer.loop import Commands, Status
from dropsim.apps.viewer.session import PARTS, Session, Shot
from dropsim.priors.named import SHIPPED
from dropsim.priors.prior import Prior
from dropsim.scene import DIRECTIONS
from dropsim.scene.files import FILES, SOMERSAULT, Setup, parse_tables, scene_text, setup_of
from dropsim.scene.scenarios import SCENARIOS

if TYPE_CHECKING:
    import viser

    from dropsim.apps.viewer.app import Browser

PLOT_SECONDS, PLOT_POINTS = 10.0, 150
ENERGIES = {
    "kinematic": "#2a7fb8",
    "momentum": "#e2843e",
    "contact": "#3a9d5d",
    "range_of_motion": "#b0539e",
    "rigidity": "#8a8f98",
}
"""Energies that are plotted, with their colours."""
WRENCH = {"root wrench": "#c8373a", "root wrench left": "#2a7fb8"}
SQUARE_CENTIMETRES, TINY = 1e4, 0.01
"""Square centimetres in a square metre (the axis has no room for small numbers), and the smallest energy drawn, because
zero has no logarithm [cm^2]."""
PACES = {"1": 1.0, "1/2": 0.5, "1/4": 0.25, "1/10": 0.1}
STARTS = ("stand", "walk", "run", "jump", "turn", "crouch", "dance", "sport", "ground")
"""Motions that some prior can start in."""
FREE = "somebody alone"
"""Name of the scene in which nothing happens by itself."""
MAX_LENGTH = 20_000
"""Characters of a scene that is typed."""
FOLLOW_AFTER = 1.0
"""Time after somebody used a control until the controls show the session's values again [s]."""
ABLATIONS = dict(zip(PARTS, ("Contact", "Range of motion", "Motion prior", "Correction"), strict=True))
"""Labels of the parts of the simulator that can be switched off."""

Shows = Callable[[Session], object]
"""Value of the session that a control shows."""


class Panel:
    """All controls, in tabs."""

    def __init__(self, browser: "Browser", session: Session) -> None:
        from viser import Icon

        self._gui, self._browser, self._session, self._icon = browser.server.gui, browser, session, Icon
        self._used = 0.0
        """When somebody used a control last [s]."""
        self._mirrors: list[tuple[Any, Shows]] = []
        """Controls, and the value that each shows of the session."""
        self._plotted: list[tuple[float, dict[str, float]]] = []
        gui = self._gui
        gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(42, 127, 184))
        # Next to the picture and not over it: nobody walks behind it.
        gui.main_panel.dock_right()
        gui.set_panel_label("dropsim")
        self._status = gui.add_markdown("Starting.")
        # The page reads it, for its title and address, and to show that it is paused.
        state = gui.add_text("dropsim scene", "", visible=False)
        self._mirrors.append((state, lambda s: f"{_scenario(s) or ''}{' paused' if s.paused else ''}"))
        with gui.add_folder("Time"):
            self._add_time(session.seconds)
        tabs = gui.add_tab_group()
        with tabs.add_tab("Scene"):
            self._add_scene(session)
        with tabs.add_tab("Disturb"):
            self._add_perturbations()
        with tabs.add_tab("World"):
            self._add_world()
        with tabs.add_tab("Plots"):
            self._energies = self._plot("Energies, first person [cm²]", ENERGIES, {"distr": 3, "log": 10})
            self._wrench = self._plot("Root wrench before and after correction [body weights]", WRENCH, {"auto": True})
        with tabs.add_tab("Save"):
            self._add_save(session.seconds)
        self._follow()

    def _listen(self, handle: Any, work: Callable[[Any], object]) -> None:  # noqa: ANN401, of viser
        """Call a function with the client whenever one clicks a button or changes another control."""

        async def used(event: Any) -> None:  # noqa: ANN401
            # Events without a client come from values that the server set.
            if event.client is not None:
                self._used = time.monotonic()
                work(event.client)

        (handle.on_click if hasattr(handle, "on_click") else handle.on_update)(used)

    def _do(self, handle: Any, name: str, shows: Shows | None = None, **options: Any) -> Any:  # noqa: ANN401
        """Send a command whenever a client uses a control, which may show a value of the session.

        Options that are controls stand for their values, and functions for what they return for the client.
        """

        def send(client: Any) -> None:  # noqa: ANN401
            values = {key: o(client) if callable(o) else getattr(o, "value", o) for key, o in options.items()}
            self._browser.commands.do(name, **values)

        self._listen(handle, send)
        if shows is not None:
            self._mirrors.append((handle, shows))
        return handle

    def _add_time(self, seconds: float) -> None:
        gui, whole = self._gui, (-seconds, 0.0)
        hint = "Stop, or go on from the newest frame."
        self._pause = self._do(gui.add_button("Pause", icon=self._icon.PLAYER_PAUSE, hint=hint), "pause")
        hint = "One frame; or again with the same random numbers."
        once = gui.add_button_group("Once", ("Step", "Restart"), hint=hint)
        self._listen(once, lambda _: self._browser.commands.do(once.value.lower()))
        pace = gui.add_dropdown("Speed", tuple(PACES), initial_value="1", hint="Slow motion.")
        self._do(pace, "slow", pace=lambda _: PACES.get(pace.value, 1.0))
        back = gui.add_slider("Look back [s]", -seconds, 0.0, 0.1, 0.0, hint="Stops, and shows what was.")
        self._do(back, "look_back", lambda s: back.value if s.paused else 0.0, seconds_ago=back)
        ends = gui.add_multi_slider(
            "Cut [s]", -seconds, 0.0, 0.1, whole, min_range=0.1, hint="Stops. Save writes what is between."
        )
        first, last = (lambda _, i=i: float(ends.value[i]) for i in range(2))
        self._do(ends, "cut", lambda s: ends.value if s.paused else whole, first_ago=first, last_ago=last)

    def _add_scene(self, session: Session) -> None:
        gui, icon = self._gui, self._icon
        with gui.add_folder("Scenario"):
            hint = "Loads it and starts it. G shows pictures."
            shown = gui.add_dropdown("Show", (FREE, *SCENARIOS), initial_value=FREE, hint=hint)
            self._do(shown, "load", lambda s: _scenario(s) or FREE, setup=lambda _: SCENARIOS.get(shown.value, Setup()))
            self.about = gui.add_markdown("")
            self._do(gui.add_button("Replay", icon=icon.RELOAD, hint="Again from the start."), "restart")
            edit = gui.add_button("Edit", icon=icon.PENCIL, hint="The scene as text: change it and start it.")
            self._listen(edit, lambda client: edit_scene(client, self._browser.commands))
        with gui.add_folder("Start"):
            self._start = start = gui.add_dropdown("Motion", starts_of(session.simulator.prior))
            self._do(start, "begin", lambda s: s.scene.people[0].start, start=start)
            # The first is the current one.
            names = tuple(session.priors) or (session.simulator.prior.name,)
            hint = "The bank or model that people move by. Changing it restarts."
            prior = self._prior = gui.add_dropdown("Prior", names, disabled=len(names) < 2, hint=hint)
            self._do(prior, "use", lambda s: s.prior_name or prior.value, prior=prior)
            people = gui.add_slider("People", 1, max(MAX_PEOPLE, len(session.scene.people)), 1, 1)
            self._do(people, "begin", lambda s: min(len(s.scene.people), int(people.max)), people=people)
            seed = gui.add_number("Seed", 0, min=0, max=2**31, step=1, hint="Other random numbers.")
            self._do(seed, "begin", lambda s: s.setup.seed, seed=seed)
            ghost = gui.add_checkbox("Ghost", initial_value=False, hint="The same person, undisturbed.")
            self._do(ghost, "begin", lambda s: s.ghost, ghost=ghost)
        with gui.add_folder("Walk"):
            led = gui.add_checkbox("Lead them", initial_value=False, hint="People plan ahead to move at this velocity.")
            speed = gui.add_slider("Speed [m/s]", 0.0, MAX_SPEED, 0.1, 1.2)
            way = gui.add_slider("Way [deg]", -180, 180, 5, 0, hint="Left is positive; 0 is ahead at the start.")
            for handle in (led, speed, way):
                self._do(handle, "walk", speed=speed, degrees=way, on=led)

    def _add_perturbations(self) -> None:
        gui = self._gui
        with gui.add_folder("Push"):
            gui.add_markdown("Drag a limb with the mouse, or push the chest for 0.3 s. Press **?** for the keys.")
            self.drag = gui.add_slider("Drag [N]", 50, 1000, 10, 400, hint="Largest force of the mouse.")
            force = gui.add_slider("Force [N]", 50, 800, 10, 250)
            ways = gui.add_button_group("Toward", tuple(way.capitalize() for way in DIRECTIONS))
            self._do(ways, "push", direction=ways, newtons=force)
        with gui.add_folder("Ball"):
            speed, mass = gui.add_slider("Speed [m/s]", 3, 15, 0.5, 8), gui.add_slider("Mass [kg]", 0.5, 15, 0.5, 3)
            self.ball: dict[str, Any] = {"ball_speed": speed, "ball_mass": mass}
            hint = "From where you look, at the chest. Or click on the body to aim."
            throw = gui.add_button("Throw", icon=self._icon.BALL_VOLLEYBALL, hint=hint)
            self._do(throw, "throw", origin=self._browser.eye, **self.ball)
        with gui.add_folder("Ground"):
            roll = gui.add_slider("Roll [deg]", -MAX_TILT, MAX_TILT, 1, 0, hint="Positive: down to +x.")
            pitch = gui.add_slider("Pitch [deg]", -MAX_TILT, MAX_TILT, 1, 0, hint="Positive: up along +y.")
            for i, handle in enumerate((roll, pitch)):
                self._do(handle, "tilt", lambda s, i=i: s.tilt[i], roll=roll, pitch=pitch)
        with gui.add_folder("Stumble"):
            foot = gui.add_button_group("Trip the foot", ("Left", "Right"))
            self._do(foot, "trip", foot=foot)
            stiff = gui.add_checkbox("Stiff right knee", initial_value=False)
            self._do(stiff, "stiffen", lambda s: s.stiff, stiff=stiff)

    def _add_world(self) -> None:
        gui = self._gui
        with gui.add_folder("Boxes and ice"):
            hint = "On the floor, on a box or on ice. Boxes can be dragged at any time."
            self.click = {
                "does": gui.add_dropdown("A click", (GO, BOX, PAINT, TAKE), initial_value=GO, hint=hint),
                "box_mass": gui.add_slider("Box [kg]", 1, 50, 1, 8),
                "box_size": gui.add_slider("Box [m]", 0.2, 0.8, 0.05, 0.4),
                "ice_size": gui.add_slider("Ice [m]", 0.5, 3.0, 0.1, 1.0),
            }
            hint = "Every loose box and every patch of ice."
            self._do(gui.add_button("Take all away", icon=self._icon.TRASH, hint=hint), "take_away")
        with gui.add_folder("Energies"):
            for part, label in ABLATIONS.items():
                box = gui.add_checkbox(label, initial_value=True)
                self._do(box, "switch", lambda s, part=part: part not in s.off, energy=part, on=box)
        with gui.add_folder("Look", expand_by_default=False):
            self._look = {
                name: gui.add_checkbox(name.replace("_", " ").capitalize(), shown)
                for name, shown in vars(Look()).items()
            }

    @property
    def look(self) -> Look:
        """Choice of what is shown."""
        return Look(**{name: bool(box.value) for name, box in self._look.items()})

    def toggle_follow(self) -> None:
        """Let the view go along with the people, or stay."""
        self._look["follow"].value = not self._look["follow"].value

    def _add_save(self, seconds: float) -> None:
        gui, labels = self._gui, {"npz": "npz (AMASS)", "toml": "Scene (TOML), from its start"}
        gui.add_markdown(f"The last {seconds:g} s at most, or what *Time, Cut* has chosen, as")
        for kind in KINDS:
            button = gui.add_button(labels.get(kind, kind.upper()), icon=self._icon.DOWNLOAD)
            self._listen(button, lambda client, kind=kind: self._browser.save(client, kind))
        with gui.add_folder("Live link"):
            hint = "To Unity, Unreal, Blender or Godot, as they move."
            live = gui.add_checkbox("Stream by VMC", initial_value=False, hint=hint)
            stream = self._browser.stream
            self._listen(live, lambda _: self._browser.commands.put(lambda _: stream(bool(live.value))))

    # --- plots

    def _plot(self, title: str, lines: dict[str, str], y: dict[str, Any]) -> Any:  # noqa: ANN401
        empty = tuple(np.zeros(2) for _ in range(1 + len(lines)))
        curves = ({"label": name, "stroke": color, "width": 1.5} for name, color in lines.items())
        series: Any = ({"label": "s"}, *curves)
        scales: Any = {"x": {"time": False}, "y": y}
        self._gui.add_markdown(f"**{title}**")
        return self._gui.add_uplot(empty, series, scales=scales, height=240)

    def remember(self, shot: Shot) -> None:
        """Keep a frame's values for the plots; going back in time drops later ones."""
        oldest = shot.time - PLOT_SECONDS if shot.frame > 1 else shot.time
        self._plotted = [row for row in self._plotted if oldest <= row[0] < shot.time]
        if shot.report is not None:
            self._plotted.append((shot.time, shot.values))

    def plot(self) -> None:
        """Draw the plots."""
        rows = self._plotted[:: max(1, len(self._plotted) // PLOT_POINTS)]
        if len(rows) < 2:
            return
        times = np.array([time for time, _ in rows])

        def curve(name: str, unit: float, least: float) -> np.ndarray:
            return np.array([max(unit * values.get(name, 0.0), least) for _, values in rows])

        self._energies.data = (times, *(curve(name, SQUARE_CENTIMETRES, TINY) for name in ENERGIES))
        self._wrench.data = (times, *(curve(name, 1.0, 0.0) for name in WRENCH))

    # --- what holds

    def tell(self, shot: Shot, status: Status) -> None:
        """Update the status line."""
        share = 100 * status.late / max(1, status.frames)
        watching = self._browser.watching
        self._status.content = f"**{shot.time:.1f} s** · late frames {share:.1f} % · watching {watching}"
        self._pause.label = "Play" if status.paused else "Pause"
        self._pause.icon = self._icon.PLAYER_PLAY if status.paused else self._icon.PLAYER_PAUSE
        if time.monotonic() - self._used > FOLLOW_AFTER:
            self._follow()

    def _follow(self) -> None:
        """Let the controls show what holds: a scene that was loaded has its own people, start, seed and ground."""
        session = self._session
        if session.prior_name not in ("", self._prior.value):
            self._start.options = starts_of(session.simulator.prior)
        scenario = _scenario(session)
        about = SCENARIOS[scenario].description if scenario else ""
        if self.about.content != about:
            self.about.content = about
        for handle, shows in self._mirrors:
            value = shows(session)
            if handle.value != value and value in getattr(handle, "options", (value,)):
                handle.value = value


def starts_of(prior: Prior) -> tuple[str, ...]:
    """Return the motions that people can start in with a prior."""
    return tuple(name for name in STARTS if can_start(prior, name)) or ("recording",)


def _scenario(session: Session) -> str | None:
    return session.setup.name if session.setup.name in SCENARIOS else None


def typed_scene(text: str) -> Setup:
    """Read a scene that somebody typed in a browser. It names no files: they would be the server's."""
    remedy = "start `dropsim view` with a scene file instead"
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a scene that is typed has at most {MAX_LENGTH} characters: {remedy}")
    tables = parse_tables(text, "the scene")
    for table in tables:
        for key in ("file", *FILES) if isinstance(table.values, Mapping) else ():
            if key in table.values and table.values[key] not in (SOMERSAULT, *SHIPPED):
                raise ValueError(f"{table.where(key)}{key} names a file, which a browser may not: {remedy}")
    setup = setup_of(tables, Path(), "edited")
    counts = {
        "people": (len(setup.scene.people), 9),
        "elements and steps of stairs": (sum(getattr(e, "num_steps", 1) for e in setup.scene.elements), 60),
        "iterations": (setup.simulator.num_iterations, 20),
        "samples": (setup.simulator.num_samples or 1, 256),
    }
    for name, (count, most) in counts.items():
        if count > most:
            raise ValueError(f"a scene that is typed has at most {most} {name}, not {count}: {remedy}")
    return setup


def edit_scene(client: "viser.ClientHandle", commands: Commands) -> None:
    """Show a client the scene, with what was done to it, as text to change."""

    def show(session: Session) -> None:
        with client.gui.add_modal("The scene, as a file has it") as modal:
            text = client.gui.add_text("TOML", scene_text(session.played_setup(), Path()), multiline=True)
            start, leave = client.gui.add_button("Start it"), client.gui.add_button("Leave it")

        def load(session: Session) -> None:
            """Start it, and close the text only then: whoever mistyped goes on with it."""
            do(session, "load", typed_scene(str(text.value)))
            modal.close()

        async def started(_: object) -> None:
            commands.put(load)

        async def left(_: object) -> None:
            modal.close()

        start.on_click(started)
        leave.on_click(left)

    commands.put(show)
