// A window for what needs one. Import it first: signals that read the browser take what they find when they are loaded.

import { JSDOM } from "jsdom";

const { window } = new JSDOM("<!doctype html>", { url: "http://127.0.0.1/" });

/** What jsdom has not: nothing here has a size, so nothing ever changes it. */
class ResizeObserver {
  observe() {}
  disconnect() {}
}

// What was begun by the one name is ended by the other.
Object.assign(window, { setTimeout, clearTimeout, setInterval, clearInterval });

const { document, location, localStorage, history, navigator } = window;
Object.assign(globalThis, {
  window,
  document,
  location,
  localStorage,
  history,
  navigator,
  Element: window.Element,
  Node: window.Node,
  MutationObserver: window.MutationObserver,
  HTMLElement: window.HTMLElement,
  HTMLAnchorElement: window.HTMLAnchorElement,
  ResizeObserver,
  innerWidth: window.innerWidth,
  innerHeight: window.innerHeight,
  addEventListener: window.addEventListener.bind(window),
  removeEventListener: window.removeEventListener.bind(window),
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  isSecureContext: true,
});
