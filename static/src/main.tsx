// Web UI of Greenroom. Reading order: `wire/` (network), `state/` (frames to screen state),
// `components/` (markup).

import { options, render } from "preact";
import { App } from "./components/App";
import { firstPaint } from "./firstPaint";
import { mergeSessions } from "./state/sessionList";
import "./theme";
import { preloaded } from "./wire/preloaded";

// Effects wait for the first paint. On two cores, running both at once delays the paint.
options.requestAnimationFrame = (effects) => void firstPaint.then(effects);
void firstPaint.then(() => delete options.requestAnimationFrame);

if (preloaded) mergeSessions([preloaded.session]);

const root = document.getElementById("app");
if (root) render(<App />, root);
