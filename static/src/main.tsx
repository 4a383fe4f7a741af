// The web UI of Greenroom. Reading order: wire/ (what goes over the network), state/ (from frames to what the screen
// knows), components/ (how it looks).

import { options, render } from "preact";
import { App, ready } from "./components/App";
import { painted } from "./painted";
import "./theme";

// What is begun beside drawing (effects) waits until there is something to see: two cores do both later.
options.requestAnimationFrame = (effects) => void painted.then(effects);
void painted.then(() => delete options.requestAnimationFrame);

const root = document.getElementById("app");
if (root) void ready.then(() => render(<App />, root));
