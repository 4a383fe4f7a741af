// A window for what needs one. Import it first: signals that read the browser take what they find when they are loaded.

import { JSDOM } from "jsdom";

const { window } = new JSDOM("<!doctype html>", { url: "http://127.0.0.1/" });

/** What jsdom has not: nothing here has a size, so nothing ever changes it. */
class ResizeObserver {
  observe() {}
  disconnect() {}
}

/** What jsdom has for pages alone that are seen. Without it Preact waits 35 ms for each effect. */
const requestAnimationFrame = (draw: FrameRequestCallback) => setTimeout(() => draw(performance.now()));
const cancelAnimationFrame = (frame: ReturnType<typeof setTimeout>) => clearTimeout(frame);

// What was begun by the one name is ended by the other, also where a test puts its own clock under them later.
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
