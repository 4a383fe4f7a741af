// Parts of the UI beside the page itself. Loaded after the page is drawn.

// The app is already loaded. See `lazyBundle.ts` for the reason of the import.
import "./components/App";
import "./dom/strayDrops";
import "./dom/restoreFocus";
import "./state/orphanedEdits";
import "./state/notifications";
import "./state/seenSessions";
import "./state/titleBadge";
