// What grows is followed while the reader is at its end, and moves nobody who has left it.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { CommandsTab } from "../src/components/CommandsTab";
import { LongList } from "../src/components/LongList";
import { Script } from "./frames";
import { press, root, settled, shown, Stage } from "./stage";

const WINDOW = 100;
let width = 0;
const scrolledTo = new WeakMap<Element, number>();

/** As a browser would lay it out, were each letter a pixel high and each row of a list as high as it says. */
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
      // What has become shorter is scrolled to its very end, and stays there.
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

/** The reader scrolls by so many pixels; the browser says so a moment later. */
function scroll(box: HTMLElement, by: number): () => void {
  box.scrollTop += by;
  return () => box.dispatchEvent(new window.Event("scroll"));
}

/** A text of so many letters that grows on. */
function writes(stage: Stage): (letters: number) => Promise<void> {
  let offset = 0;
  return async (letters) => {
    stage.say({ delta: "text", item: "t", offset, content: "x".repeat(letters) });
    offset += letters;
    await settled();
  };
}

async function chat(script: Script): Promise<{ stage: Stage; box: HTMLElement; write: (letters: number) => Promise<void> }> {
  const stage = new Stage();
  stage.play(script);
  await shown(<Chat live={stage.live} />);
  const box = boxOf("[role=log]");
  const write = writes(stage);
  await write(1000);
  assert.ok(isAtEnd(box));
  return { stage, box, write };
}

afterEach(() => render(null, root));

test("what the reader unfolds stays where it is while more comes", async () => {
  const { box, write } = await chat(new Script().see("think", "t".repeat(300), {}));
  press("Thought");
  await drawn();
  const there = box.scrollTop;
  await write(10);
  assert.equal(box.scrollTop, there);
  assert.match(root.querySelector(".pill")?.textContent ?? "", /Latest/);
});

test("what is folded again before more comes is followed", async () => {
  const { box, write } = await chat(new Script().see("think", "t".repeat(300), {}));
  for (const _ of ["unfolded", "folded"]) {
    press("Thought");
    await drawn();
  }
  await write(10);
  assert.ok(isAtEnd(box));
  assert.equal(root.querySelector(".pill"), null);
});

test("so does what a tool call hides, and what is hidden in that", async () => {
  const script = new Script().act("agent", "read", { path: "a" }, { item: "r" }).see("read", "t".repeat(60), { path: "a" }, { item: "r" });
  const { box, write } = await chat(script);
  boxOf(".tool-line").click();
  await drawn();
  let there = box.scrollTop;
  await write(10);
  assert.equal(box.scrollTop, there);
  // Where it is unfolded already, and the reader has come back to the end.
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
  const { stage, box } = await chat(new Script().act("agent", "run", { command: "make" }, { item: "r" }));
  for (let offset = 0; offset < 600; offset += 200) {
    stage.say({ delta: "output", item: "r", offset, content: "o".repeat(200) });
    await settled();
    assert.ok(isAtEnd(box));
  }
});

test("a page of the past is drawn whenever it is asked for", async () => {
  const script = new Script();
  for (let n = 0; n < 200; n += 1) script.see("message", `said ${n}`, {});
  const { box } = await chat(script);
  while (box.querySelector<HTMLElement>(".earlier")?.hidden) await settled();
  const mounted = () => box.querySelectorAll(".row").length;
  for (let page = 0; page < 3; page += 1) {
    const before = mounted();
    box.querySelector<HTMLElement>(".earlier")!.click();
    await settled();
    assert.equal(mounted(), before + 24);
  }
});

/** A box that follows its end, and what makes it grow. */
const GROWING: Record<string, () => Promise<{ box: HTMLElement; grow: () => Promise<unknown>; near: number }>> = {
  async conversation() {
    const { box, write } = await chat(new Script());
    return { box, grow: () => write(10), near: 30 };
  },
  async commands() {
    const { stage, grow } = prints();
    await shown(<CommandsTab live={stage.live} />);
    return { box: boxOf(".screen"), grow, near: 30 };
  },
  async "output of a command"() {
    const { stage, grow } = prints();
    await shown(<Chat live={stage.live} />);
    return { box: boxOf(".output"), grow, near: 15 };
  },
  async "list of frames"() {
    let count = 20;
    const list = () => shown(<LongList label="Frames" count={count} rowHeight={28} row={() => null} />);
    await list();
    const grow = async () => {
      count += 1;
      await list();
    };
    return { box: boxOf(".long-list"), grow, near: 20 };
  },
};

function prints() {
  const stage = new Stage();
  stage.play(new Script().act("agent", "run", { command: "make" }, { item: "r" }));
  let offset = 0;
  const print = (letters: number) => {
    stage.say({ delta: "output", item: "r", offset, content: "o".repeat(letters) });
    offset += letters;
    return settled();
  };
  void print(500);
  return { stage, grow: () => print(10) };
}

for (const [name, open] of Object.entries(GROWING)) {
  test(`${name}: a move upwards is a leave, however small, until the reader comes back`, async () => {
    const { box, grow, near } = await open();
    await grow();
    assert.ok(isAtEnd(box));
    for (const isTold of [true, false]) {
      const tell = scroll(box, -near);
      if (isTold) tell();
      const there = box.scrollTop;
      await grow();
      // Where it was not told before it is told now.
      tell();
      await grow();
      assert.equal(box.scrollTop, there);
      scroll(box, furthest(box) - box.scrollTop - 5)();
      await grow();
      assert.ok(isAtEnd(box), "they are near the end again");
    }
  });

  test(`${name}: a slow move adds up`, async () => {
    const { box, grow } = await open();
    await grow();
    for (let step = 0; step < 10; step += 1) scroll(box, -0.5)();
    const there = box.scrollTop;
    await grow();
    assert.equal(box.scrollTop, there);
  });

  test(`${name}: where the browser scrolls for another width, that was not the reader`, async () => {
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

test("what becomes shorter is followed", async () => {
  const { stage, box } = await chat(new Script());
  stage.say({ delta: "text", item: "t", offset: 0, content: "x".repeat(500) });
  await settled();
  stage.say({ delta: "text", item: "t", offset: 500, content: "x".repeat(500) });
  await settled();
  assert.ok(isAtEnd(box));
});
