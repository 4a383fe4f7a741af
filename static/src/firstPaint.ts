// When the page is on the screen for the first time. What can wait until then does: two cores draw sooner than they do both.

/** A page that nobody sees is not painted, and goes on all the same, in milliseconds. */
const LATEST_MS = 500;

/** Done when there is something to see. */
export const painted = new Promise<void>((resolve) => {
  setTimeout(resolve, LATEST_MS);
  if (!("PerformanceObserver" in globalThis)) return;
  new PerformanceObserver((list, observer) => {
    if (list.getEntriesByName("first-contentful-paint").length === 0) return;
    observer.disconnect();
    resolve();
  }).observe({ type: "paint", buffered: true });
});
