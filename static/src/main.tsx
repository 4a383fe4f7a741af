// The web UI of Greenroom. Reading order: wire/ (what goes over the network), state/ (from frames to what the screen
// knows), components/ (how it looks).

import { render } from "preact";
import { App, ready } from "./components/App";
import "./theme";

const root = document.getElementById("app");
if (root) void ready.then(() => render(<App />, root));
