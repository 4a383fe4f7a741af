// Frame list while more frames arrive.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { EventsTab } from "../src/components/EventsTab";
import "../src/dom/restoreFocus";
import { DEFAULT_FILTER, FilteredFrames } from "../src/state/frameFilter";
import { FrameLog, type LoggedFrame } from "../src/wire/frameLog";
import { FrameScript } from "./frameScript";
import { root, settled, renderText, TestSession } from "./testSession";

const ROW = 28;
const list = () => root.querySelector<HTMLElement>(".long-list")!;
const focused = () => document.activeElement?.querySelector(".frame-seq")?.textContent;

/** Simulated layout of a window with ten rows. */
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

/** Opens a session; the returned function adds events. */
async function openTab(): Promise<(events: number) => Promise<void>> {
  const testSession = new TestSession();
  const script = new FrameScript();
  await renderText(<EventsTab live={testSession.live} />);
  return async (events) => {
    for (let n = 0; n < events; n += 1) script.addObservation("message", `said ${n}`, {});
    testSession.play(script);
    await settled();
    // A browser reports a list that scrolled itself.
    await scrollTo(list().scrollTop);
  };
}

afterEach(() => render(null, root));

test("list position stays for keyboard users while frames arrive", async () => {
  const works = await openTab();
  await works(50);
  assert.equal(list().scrollTop, 50 * ROW, "the list follows its end");
  const row = [...root.querySelectorAll<HTMLElement>(".frame")].at(-1)!;
  row.focus();
  assert.equal(focused(), "50");
  await works(100);
  assert.ok(row.isConnected);
  assert.equal(focused(), "50");
  row.blur();
  await works(10);
  assert.equal(list().scrollTop, 50 * ROW, "the focus is not at the end yet");
  await scrollTo(list().scrollHeight - list().clientHeight);
  await works(10);
  assert.equal(list().scrollTop, list().scrollHeight, "the focus is at the end");
});

test("removed row passes the focus to its list", async () => {
  document.body.insertAdjacentHTML("beforeend", '<div class="composer"><textarea></textarea></div>');
  const works = await openTab();
  await works(100);
  root.querySelector<HTMLElement>(".frame")!.focus();
  await scrollTo(0);
  assert.equal(document.activeElement, list());
  document.querySelector(".composer")?.remove();
});

test("prepended frames do not replace the chosen one", () => {
  const log = new FrameLog();
  log.add("in", { status: "pong" }, 0, false);
  const [looked] = log.entries;
  log.prepend(Array.from({ length: 3 }, () => ({ status: "pong" }) as const));
  log.add("in", { status: "pong" }, 0, false);
  assert.equal(log.entries[3], looked);
  assert.deepEqual(log.entries.map(({ n }) => n), [-2, -1, 0, 1, 2]);
});

test("filter checks only new frames", (context) => {
  let looks = 0;
  const entry = (n: number, content: string): LoggedFrame => ({
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
  const sieve = new FilteredFrames();
  const tenths = { ...DEFAULT_FILTER, deltas: true, text: "TENTH" };
  assert.equal(sieve.of(log, tenths).length, 10);
  looks = 0;
  log.push(entry(100, "one tenth more"));
  assert.equal(sieve.of(log, tenths).length, 11);
  assert.ok(looks < 5, `${looks} looks`);
  const written = context.mock.method(JSON, "stringify");
  assert.equal(sieve.of(log, { ...tenths, text: "another" }).length, 90);
  assert.equal(written.mock.callCount(), 0, "texts are cached");
  assert.equal(sieve.of(log.slice(50), tenths).length, 6, "the log dropped the oldest");
});
