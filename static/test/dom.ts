// A window for what needs one. Import it first: the sanitiser takes the window that it finds when it is loaded.

import { JSDOM } from "jsdom";

const { window } = new JSDOM("<!doctype html>", { url: "http://127.0.0.1/" });

Object.assign(globalThis, { window, document: window.document, Element: window.Element, Node: window.Node });
