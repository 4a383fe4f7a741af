// The web UI of Greenroom. Reading order: wire/ (what goes over the network), state/ (from frames to what the screen
// knows), components/ (how it looks).

import { options, render } from "preact";
import { App } from "./components/App";
import { painted } from "./painted";
import { learn } from "./state/list";
import "./theme";
import { given } from "./wire/given";

// What is begun beside drawing (effects) waits until there is something to see: two cores do both later.
options.requestAnimationFrame = (effects) => void painted.then(effects);
void painted.then(() => delete options.requestAnimationFrame);

if (given) learn([given.session]);

const root = document.getElementById("app");
if (root) render(<App />, root);
