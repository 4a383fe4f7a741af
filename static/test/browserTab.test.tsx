// Browser tab: address, picture, console and the pages before, with the test as the server.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { BrowserTab } from "../src/browser/BrowserTab";
import { FrameScript } from "./frameScript";
import { press, renderText, root, settled, TestSession } from "./testSession";

afterEach(() => render(null, root));

const PICTURE = "/api/sessions/s1/contents/P";

/** Adds a page that was opened, with the given extras. */
function page(script: FrameScript, path: string, extras: { title?: string; screenshot?: string; console?: string[]; plain?: boolean } = {}): FrameScript {
  const url = `http://127.0.0.1:3000${path}`;
  const ties = { item: path };
  return script.addAction("agent", "browse", { url }, ties).addObservation("browse", "text", { url, ...extras }, ties);
}

async function shown(script: FrameScript): Promise<TestSession> {
  const session = new TestSession();
  session.play(script);
  await renderText(<BrowserTab live={session.live} />);
  return session;
}

const address = () => root.querySelector(".browser-address bdi")?.textContent;
const strip = () => [...root.querySelectorAll(".page-strip button")].map((button) => button.textContent);

test("page is shown with address, picture and console", async () => {
  const asked: string[] = [];
  globalThis.fetch = async (asking) => {
    asked.push(new URL(String(asking)).pathname);
    return new Response(new Blob(["x"], { type: "image/jpeg" }));
  };
  URL.createObjectURL = () => "blob:picture";
  URL.revokeObjectURL = () => {};
  await shown(page(new FrameScript().state("idle"), "/", { title: "Shop", screenshot: PICTURE, console: ["error: <b>price</b>"] }));
  assert.equal(address(), "http://127.0.0.1:3000/");
  assert.equal(root.querySelector("h3")?.textContent, "Shop");
  const picture = root.querySelector("img")!;
  assert.deepEqual([asked, picture.getAttribute("src"), picture.alt], [[PICTURE], "blob:picture", "Shop"]);
  assert.deepEqual([...root.querySelectorAll(".browser-console li")].map((line) => line.textContent), ["error: <b>price</b>"]);
  assert.deepEqual(strip(), [], "one page needs no strip");
});

test("newest page is followed until the reader looks back", async () => {
  const script = page(page(new FrameScript().state("running"), "/one"), "/two", { title: "Two" });
  const session = await shown(script);
  assert.equal(address(), "http://127.0.0.1:3000/two");
  const follow = async (path: string) => {
    const sent = script.frames.length;
    page(script, path);
    session.receive(...script.frames.slice(sent));
    await settled();
  };
  await follow("/three");
  assert.equal(address(), "http://127.0.0.1:3000/three");
  press("1. http://127.0.0.1:3000/one");
  await settled();
  await follow("/four");
  assert.equal(address(), "http://127.0.0.1:3000/one", "the reader looks back");
  assert.equal(root.querySelector("[aria-current=page]")?.textContent, "1. http://127.0.0.1:3000/one");
  press("Follow the newest");
  await settled();
  await follow("/five");
  assert.equal(address(), "http://127.0.0.1:3000/five");
});

test("page without a browser says so, and a load is announced", async () => {
  const script = page(new FrameScript().state("running"), "/", { plain: true });
  script.addAction("agent", "browse", { url: "http://127.0.0.1:3000/slow" }, { item: "slow" });
  await shown(script);
  assert.match(root.textContent!, /Fetched without a browser: no picture/);
  assert.equal(root.querySelector("[role=status]")?.textContent, "Opening http://127.0.0.1:3000/slow…");
});

test("failed load is no page", async () => {
  const script = page(new FrameScript().state("idle"), "/");
  const ties = { item: "a" };
  script.addAction("agent", "browse", { url: "http://a/" }, ties).addObservation("error", "", { code: "tool_failed", detail: "no" }, ties);
  await shown(script);
  assert.equal(address(), "http://127.0.0.1:3000/");
  assert.deepEqual(strip(), []);
});
