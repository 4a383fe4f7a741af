// The web UI of Greenroom. Reading order: wire/ (what goes over the network), state/ (from frames to what the screen
// knows), components/ (how it looks).

import { render } from "preact";
import { App, ready } from "./components/App";
import "./theme";

const root = document.getElementById("app");
// Where that code does not come, the page is drawn all the same, and tries again.
if (root) void ready.catch(() => {}).then(() => render(<App />, root));
