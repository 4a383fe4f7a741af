// Following of growing content. A reader who left the end is not moved.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, before, test } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { CommandsTab } from "../src/components/CommandsTab";
import { LongList } from "../src/components/LongList";
import { loadLazy } from "../src/loadLazy";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession } from "./testSession";

const WINDOW = 100;
let width = 0;
const scrolledTo = new WeakMap<Element, number>();

/** Simulated layout: one pixel per letter, list rows as high as declared. */
const heightOf = (box: HTMLElement) =>
  Number.parseInt(box.querySelector<HTMLElement>(".long-list-all")?.style.height ?? `${box.textContent?.length}`);
const furthest = (box: HTMLElement) => Math.max(0, heightOf(box) - WINDOW);
Object.defineProperties(window.HTMLElement.prototype, {
  clientHeight: { get: () => WINDOW },
  clientWidth: { get: () => width },
  scrollHeight: {
    get(this: HTMLElement) {
      return heightOf(this);
    },
  },
  scrollTop: {
    get(this: HTMLElement) {
      // A browser scrolls shortened content to its end.
      scrolledTo.set(this, Math.min(scrolledTo.get(this) ?? 0, furthest(this)));
      return scrolledTo.get(this);
    },
    set(this: HTMLElement, to: number) {
      scrolledTo.set(this, Math.max(0, to));
    },
  },
});

const boxOf = (selector: string) => root.querySelector<HTMLElement>(selector)!;
const isAtEnd = (box: HTMLElement) => box.scrollTop === furthest(box);
const drawn = () => new Promise((resolve) => setImmediate(resolve));

/** Scrolls by pixels. The returned function fires the scroll event. */
function scroll(box: HTMLElement, by: number): () => void {
  box.scrollTop += by;
  return () => box.dispatchEvent(new window.Event("scroll"));
}

/** Writes a text that grows by letters. */
function startWriting(testSession: TestSession): (letters: number) => Promise<void> {
  let offset = 0;
  return async (letters) => {
    testSession.receive({ delta: "text", item: "t", offset, content: "x".repeat(letters) });
    offset += letters;
    await settled();
  };
}

async function openChat(script: FrameScript): Promise<{ testSession: TestSession; box: HTMLElement; write: (letters: number) => Promise<void> }> {
  const testSession = new TestSession();
  testSession.play(script);
  await renderText(<Chat live={testSession.live} />);
  const box = boxOf("[role=log]");
  const write = startWriting(testSession);
  await write(1000);
  assert.ok(isAtEnd(box));
  return { testSession, box, write };
}

before(loadLazy);
afterEach(() => render(null, root));

test("unfolded content stays in place while more arrives", async () => {
  const { box, write } = await openChat(new FrameScript().addObservation("think", "t".repeat(300), {}));
  press("Thought");
  await drawn();
  const there = box.scrollTop;
  await write(10);
  assert.equal(box.scrollTop, there);
  assert.match(root.querySelector(".pill")?.textContent ?? "", /Latest/);
});

test("refolded content is followed again", async () => {
  const { box, write } = await openChat(new FrameScript().addObservation("think", "t".repeat(300), {}));
  for (const _ of ["unfolded", "folded"]) {
    press("Thought");
    await drawn();
  }
  await write(10);
  assert.ok(isAtEnd(box));
  assert.equal(root.querySelector(".pill"), null);
});

test("unfolded tool calls and their JSON stay in place", async () => {
  const script = new FrameScript().addAction("agent", "read", { path: "a" }, { item: "r" }).addObservation("read", "t".repeat(60), { path: "a" }, { item: "r" });
  const { box, write } = await openChat(script);
  boxOf(".tool-line").click();
  await drawn();
  let there = box.scrollTop;
  await write(10);
  assert.equal(box.scrollTop, there);
  // Unfolded already, with the reader back at the end.
  scroll(box, 1000)();
  await write(10);
  assert.ok(isAtEnd(box));
  const raw = root.querySelector("details")!;
  raw.append("t".repeat(200));
  raw.open = true;
  await drawn();
  there = box.scrollTop;
  await write(10);
  assert.equal(box.scrollTop, there);
});

test("output that unfolds by itself is followed", async () => {
  const { testSession, box } = await openChat(new FrameScript().addAction("agent", "run", { command: "make" }, { item: "r" }));
  for (let offset = 0; offset < 600; offset += 200) {
    testSession.receive({ delta: "output", item: "r", offset, content: "o".repeat(200) });
    await settled();
    assert.ok(isAtEnd(box));
  }
});

test("earlier rows load at any time", async () => {
  const script = new FrameScript();
  for (let n = 0; n < 200; n += 1) script.addObservation("message", `said ${n}`, {});
  const { box } = await openChat(script);
  while (box.querySelector<HTMLElement>(".earlier")?.hidden) await settled();
  const mounted = () => box.querySelectorAll(".row").length;
  for (let page = 0; page < 3; page += 1) {
    const before = mounted();
    box.querySelector<HTMLElement>(".earlier")!.click();
    await settled();
    assert.equal(mounted(), before + 24);
  }
});

/** Boxes that follow their end, with a way to grow each. */
const GROWING: Record<string, () => Promise<{ box: HTMLElement; grow: () => Promise<unknown>; near: number }>> = {
  async conversation() {
    const { box, write } = await openChat(new FrameScript());
    return { box, grow: () => write(10), near: 30 };
  },
  async commands() {
    const { testSession, grow } = startPrinting();
    await renderText(<CommandsTab live={testSession.live} />);
    return { box: boxOf(".screen"), grow, near: 30 };
  },
  async "output of a command"() {
    const { testSession, grow } = startPrinting();
    await renderText(<Chat live={testSession.live} />);
    return { box: boxOf(".output"), grow, near: 15 };
  },
  async "list of frames"() {
    let count = 20;
    const list = () => renderText(<LongList label="Frames" count={count} rowHeight={28} row={() => null} />);
    await list();
    const grow = async () => {
      count += 1;
      await list();
    };
    return { box: boxOf(".long-list"), grow, near: 20 };
  },
};

function startPrinting() {
  const testSession = new TestSession();
  testSession.play(new FrameScript().addAction("agent", "run", { command: "make" }, { item: "r" }));
  let offset = 0;
  const print = (letters: number) => {
    testSession.receive({ delta: "output", item: "r", offset, content: "o".repeat(letters) });
    offset += letters;
    return settled();
  };
  void print(500);
  return { testSession, grow: () => print(10) };
}

for (const [name, open] of Object.entries(GROWING)) {
  test(`${name}: any move upwards stops following until the reader returns`, async () => {
    const { box, grow, near } = await open();
    await grow();
    assert.ok(isAtEnd(box));
    for (const isTold of [true, false]) {
      const tell = scroll(box, -near);
      if (isTold) tell();
      const there = box.scrollTop;
      await grow();
      // The scroll event arrives now at the latest.
      tell();
      await grow();
      assert.equal(box.scrollTop, there);
      scroll(box, furthest(box) - box.scrollTop - 5)();
      await grow();
      assert.ok(isAtEnd(box), "the reader is near the end again");
    }
  });

  test(`${name}: small moves of a slow scroll add up`, async () => {
    const { box, grow } = await open();
    await grow();
    for (let step = 0; step < 10; step += 1) scroll(box, -0.5)();
    const there = box.scrollTop;
    await grow();
    assert.equal(box.scrollTop, there);
  });

  test(`${name}: scrolling by the browser after a resize does not count as the reader's`, async () => {
    const { box, grow, near } = await open();
    await grow();
    width += 1;
    scroll(box, -near);
    await grow();
    assert.ok(isAtEnd(box));
    width += 1;
    scroll(box, -near)();
    assert.ok(isAtEnd(box));
  });
}

test("shortened content is followed", async () => {
  const { testSession, box } = await openChat(new FrameScript());
  testSession.receive({ delta: "text", item: "t", offset: 0, content: "x".repeat(500) });
  await settled();
  testSession.receive({ delta: "text", item: "t", offset: 500, content: "x".repeat(500) });
  await settled();
  assert.ok(isAtEnd(box));
});
