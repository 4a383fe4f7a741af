// First paint of the page. Other work waits for it: on two cores the page draws sooner alone.

/** Limit of the wait in milliseconds. A hidden page is never painted. */
const LATEST_MS = 500;

/** Resolves at the first contentful paint. */
export const firstPaint = new Promise<void>((resolve) => {
  setTimeout(resolve, LATEST_MS);
  if (!("PerformanceObserver" in globalThis)) return;
  new PerformanceObserver((list, observer) => {
    if (list.getEntriesByName("first-contentful-paint").length === 0) return;
    observer.disconnect();
    resolve();
  }).observe({ type: "paint", buffered: true });
});
