// jsdom window for tests. Must be imported first, because signals read the browser when they load.

import { JSDOM } from "jsdom";

const { window } = new JSDOM("<!doctype html>", { url: "http://127.0.0.1/" });

/** Stub of `ResizeObserver`. jsdom has no sizes, so nothing changes. */
class ResizeObserver {
  observe() {}
  disconnect() {}
}

/**
 * Replacement for `requestAnimationFrame`, which jsdom lacks here. Preact would wait 35 ms per
 * effect.
 */
const requestAnimationFrame = (draw: FrameRequestCallback) => setTimeout(() => draw(performance.now()));
const cancelAnimationFrame = (frame: ReturnType<typeof setTimeout>) => clearTimeout(frame);

// Both names share one timer, also when a test mocks them later.
for (const name of ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] as const) {
  Object.defineProperty(window, name, { get: () => globalThis[name] });
}
Object.assign(window, { requestAnimationFrame, cancelAnimationFrame });

const { document, location, localStorage, sessionStorage, history, navigator } = window;
Object.assign(globalThis, {
  window,
  document,
  location,
  localStorage,
  sessionStorage,
  history,
  navigator,
  Element: window.Element,
  Node: window.Node,
  MutationObserver: window.MutationObserver,
  HTMLElement: window.HTMLElement,
  HTMLAnchorElement: window.HTMLAnchorElement,
  ResizeObserver,
  requestAnimationFrame,
  cancelAnimationFrame,
  innerWidth: window.innerWidth,
  innerHeight: window.innerHeight,
  addEventListener: window.addEventListener.bind(window),
  removeEventListener: window.removeEventListener.bind(window),
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  isSecureContext: true,
});
