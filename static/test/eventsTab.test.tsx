// The raw frames, as they are read while more of them come.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { EventsTab } from "../src/components/EventsTab";
import "../src/refocus";
import { everything, Sieve } from "../src/state/frames";
import { FrameLog, type Entry } from "../src/wire/log";
import { Script } from "./frames";
import { root, settled, shown, Stage } from "./stage";

const ROW = 28;
const list = () => root.querySelector<HTMLElement>(".long-list")!;
const focused = () => document.activeElement?.querySelector(".frame-seq")?.textContent;

/** A window of ten rows, as a browser would lay it out. */
Object.defineProperties(window.HTMLElement.prototype, {
  clientHeight: { get: () => 10 * ROW, configurable: true },
  scrollHeight: {
    get(this: HTMLElement) {
      return Number.parseInt(this.querySelector<HTMLElement>(".long-list-all")?.style.height ?? "0");
    },
    configurable: true,
  },
});
window.HTMLElement.prototype.scrollIntoView = () => {};

async function scrollTo(top: number): Promise<void> {
  list().scrollTop = top;
  list().dispatchEvent(new window.Event("scroll"));
  await settled();
}

/** A session that works on; `works` brings so many events more. */
async function opened(): Promise<(events: number) => Promise<void>> {
  const stage = new Stage();
  const script = new Script();
  await shown(<EventsTab live={stage.live} />);
  return async (events) => {
    for (let n = 0; n < events; n += 1) script.see("message", `said ${n}`, {});
    stage.play(script);
    await settled();
    // A browser says so when the list has moved itself.
    await scrollTo(list().scrollTop);
  };
}

afterEach(() => render(null, root));

test("who reads the frames by keyboard stays where they are while more come", async () => {
  const works = await opened();
  await works(50);
  assert.equal(list().scrollTop, 50 * ROW, "it follows its end");
  const row = [...root.querySelectorAll<HTMLElement>(".frame")].at(-1)!;
  row.focus();
  assert.equal(focused(), "50");
  await works(100);
  assert.ok(row.isConnected);
  assert.equal(focused(), "50");
  row.blur();
  await works(10);
  assert.equal(list().scrollTop, 50 * ROW, "they have not gone back to the end");
  await scrollTo(list().scrollHeight - list().clientHeight);
  await works(10);
  assert.equal(list().scrollTop, list().scrollHeight, "and now they have");
});

test("a row that is scrolled away leaves the focus to its list", async () => {
  document.body.insertAdjacentHTML("beforeend", '<div class="composer"><textarea></textarea></div>');
  const works = await opened();
  await works(100);
  root.querySelector<HTMLElement>(".frame")!.focus();
  await scrollTo(0);
  assert.equal(document.activeElement, list());
  document.querySelector(".composer")?.remove();
});

test("what came before does not take the place of what somebody looks at", () => {
  const log = new FrameLog();
  log.add("in", { status: "pong" }, 0, false);
  const [looked] = log.entries;
  log.putBefore(Array.from({ length: 3 }, () => ({ status: "pong" }) as const));
  log.add("in", { status: "pong" }, 0, false);
  assert.equal(log.entries[3], looked);
  assert.deepEqual(log.entries.map(({ n }) => n), [-2, -1, 0, 1, 2]);
});

test("of frames that are filtered only the new ones are looked at", (context) => {
  let looks = 0;
  const entry = (n: number, content: string): Entry => ({
    n,
    way: "in",
    at: 0,
    replayed: false,
    get frame() {
      looks += 1;
      return { delta: "text", item: "m", offset: 0, content } as const;
    },
  });
  const log = Array.from({ length: 100 }, (_, n) => entry(n, n % 10 === 0 ? "A tenth" : "another"));
  const sieve = new Sieve();
  const tenths = { ...everything, deltas: true, text: "TENTH" };
  assert.equal(sieve.of(log, tenths).length, 10);
  looks = 0;
  log.push(entry(100, "one tenth more"));
  assert.equal(sieve.of(log, tenths).length, 11);
  assert.ok(looks < 5, `${looks} looks`);
  const written = context.mock.method(JSON, "stringify");
  assert.equal(sieve.of(log, { ...tenths, text: "another" }).length, 90);
  assert.equal(written.mock.callCount(), 0, "what they say is known");
  assert.equal(sieve.of(log.slice(50), tenths).length, 6, "the log has let go of the oldest");
});
