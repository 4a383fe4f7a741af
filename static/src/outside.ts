// What is told outside of the page: the tab's title and icon, notifications. It can wait until the page is drawn.

// Always there: see `later.ts`.
import "./components/App";
import "./state/notify";
import "./state/title";
