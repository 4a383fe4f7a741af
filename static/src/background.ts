// What goes on beside the page: the tab's title and icon, notifications, a focus that was lost, a file that went astray. It can wait
// until the page is drawn.

// Always there: see `later.ts`.
import "./components/App";
import "./astray";
import "./refocus";
import "./state/missed";
import "./state/notify";
import "./state/title";
