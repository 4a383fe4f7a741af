// Web UI of Greenroom. Reading order: `wire/` (network), `state/` (frames to screen state),
// `components/` (markup).

import "./wire/takeSignIn";
import { earlySession } from "./wire/earlyRequests";
import { options, render } from "preact";
import { App } from "./components/App";
import { firstPaint } from "./firstPaint";
import { loadLazy } from "./loadLazy";
import { route } from "./route";
import { mergeCount, mergeSessions } from "./state/sessionList";
import "./theme";
import { signedOut } from "./wire/rest";
import { lacksSecret } from "./wire/secret";

// Effects wait for the first paint. On two cores, running both at once delays the paint.
options.requestAnimationFrame = (effects) => void firstPaint.then(effects);
void firstPaint.then(() => delete options.requestAnimationFrame);

// All pages but a session are in the lazy bundle.
if (route.peek().page !== "session") void loadLazy();

signedOut.value = lacksSecret();
const requestedAt = mergeCount();
earlySession?.session.then((session) => mergeSessions([session], requestedAt), () => {});

const root = document.getElementById("app");
if (root) render(<App />, root);
