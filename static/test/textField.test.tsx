// How high the field is that messages are written in, and when it takes the focus. Nothing has a size here: the test says it.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Queue } from "../src/components/Queue";
import { TextField } from "../src/components/TextField";
import { Script } from "./frames";
import { press, root, settled, shown, Stage } from "./stage";

let width = 0;
let measured = 0;
let tell = () => {};

Object.defineProperties(HTMLElement.prototype, {
  offsetWidth: { get: () => width },
  // Of a text that takes 12,000 square pixels.
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
const isNow = async (now: number) => {
  width = now;
  tell();
  await settled();
};

beforeEach(() => {
  localStorage.clear();
  width = measured = 0;
});
afterEach(() => render(null, root));

test("a draft that appears while the conversation is folded away is seen when it comes back", async () => {
  await shown(<TextField {...field} value="a draft" />);
  assert.equal(height(), "");
  await isNow(600);
  assert.equal(height(), "20px");
  await isNow(0);
  assert.equal(height(), "");
});

test("the field fits its text at any width, and a keystroke is measured once", async () => {
  width = 600;
  await shown(<TextField {...field} value="a draft" />);
  await isNow(300);
  assert.equal(height(), "40px");
  const before = measured;
  await isNow(300);
  await isNow(300);
  assert.equal(measured, before, "it is not told of its own height");
  await shown(<TextField {...field} value="a draft that" />);
  await isNow(300);
  assert.equal(measured, before + 1);
  await shown(<TextField {...field} value="" />);
  await isNow(600);
  assert.deepEqual([height(), measured], ["", before + 1], "nothing is to be measured");
});

test("on a touch screen it takes the focus where somebody asked for it, not with its page", async () => {
  const focused = () => document.activeElement?.getAttribute("aria-label");
  const touched = (matches: boolean) => {
    globalThis.matchMedia = (() => ({ matches, addEventListener() {} })) as unknown as typeof matchMedia;
  };
  touched(true);
  await shown(<TextField {...field} value="" focus />);
  assert.equal(document.activeElement, document.body);
  render(null, root);
  const stage = new Stage();
  stage.play(new Script().see("queue", "", { items: [{ item: "m", content: "as it was" }] }));
  await shown(<Queue live={stage.live} />);
  press("Edit");
  await settled();
  assert.equal(focused(), "Waiting message");
  render(null, root);
  touched(false);
  await shown(<TextField {...field} value="" focus />);
  assert.equal(focused(), "Message");
});
