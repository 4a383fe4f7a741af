// What goes on beside the page: the tab's title and icon, notifications, a focus that was lost. It can wait until the page is
// drawn.

// Always there: see `later.ts`.
import "./components/App";
import "./refocus";
import "./state/notify";
import "./state/title";
