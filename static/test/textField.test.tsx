// Height and focus of the text field. jsdom has no layout, so the test sets sizes.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Queue } from "../src/components/Queue";
import { TextField } from "../src/components/TextField";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession } from "./testSession";

let width = 0;
let measured = 0;
let tell = () => {};

Object.defineProperties(HTMLElement.prototype, {
  offsetWidth: { get: () => width },
  // Simulates a text that covers 12,000 square pixels.
  scrollHeight: { get: () => ((measured += 1), width && 12_000 / width) },
});
Object.assign(globalThis, {
  ResizeObserver: class {
    constructor(private readonly told: () => void) {}
    observe() {
      tell = this.told;
    }
    disconnect() {
      tell = () => {};
    }
  },
});

const field = { label: "Message", placeholder: "", rows: 1, onChange() {}, onSend() {}, sendLabel: "Send", sendDisabled: false };
const height = () => root.querySelector("textarea")!.style.height;
const resizeTo = async (now: number) => {
  width = now;
  tell();
  await settled();
};

beforeEach(() => {
  localStorage.clear();
  width = measured = 0;
});
afterEach(() => render(null, root));

test("draft in a folded conversation gets its height when shown", async () => {
  await renderText(<TextField {...field} value="a draft" />);
  assert.equal(height(), "");
  await resizeTo(600);
  assert.equal(height(), "20px");
  await resizeTo(0);
  assert.equal(height(), "");
});

test("field fits its text at any width with one measurement per key", async () => {
  width = 600;
  await renderText(<TextField {...field} value="a draft" />);
  await resizeTo(300);
  assert.equal(height(), "40px");
  const before = measured;
  await resizeTo(300);
  await resizeTo(300);
  assert.equal(measured, before, "its own height change is ignored");
  await renderText(<TextField {...field} value="a draft that" />);
  await resizeTo(300);
  assert.equal(measured, before + 1);
  await renderText(<TextField {...field} value="" />);
  await resizeTo(600);
  assert.deepEqual([height(), measured], ["", before + 1], "no measurement is needed");
});

test("touch screen focuses the field only on request", async () => {
  const focused = () => document.activeElement?.getAttribute("aria-label");
  const touched = (matches: boolean) => {
    globalThis.matchMedia = (() => ({ matches, addEventListener() {} })) as unknown as typeof matchMedia;
  };
  touched(true);
  await renderText(<TextField {...field} value="" focus />);
  assert.equal(document.activeElement, document.body);
  render(null, root);
  const testSession = new TestSession();
  testSession.play(new FrameScript().addObservation("queue", "", { items: [{ item: "m", content: "as it was" }] }));
  await renderText(<Queue live={testSession.live} />);
  press("Edit");
  await settled();
  assert.equal(focused(), "Queued message");
  render(null, root);
  touched(false);
  await renderText(<TextField {...field} value="" focus />);
  assert.equal(focused(), "Message");
});
