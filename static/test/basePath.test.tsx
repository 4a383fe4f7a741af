import "./testWindow";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { ComponentChild } from "preact";

const meta = document.createElement("meta");
meta.name = "greenroom-base";
meta.content = "/tools/green";
document.head.append(meta);

let page: typeof import("../src/basePath");
let router: typeof import("../src/route");
let rest: typeof import("../src/wire/rest");
let preact: typeof import("preact");

before(async () => {
  history.replaceState(null, "", "/tools/green/sessions/s1?x=1");
  page = await import("../src/basePath");
  router = await import("../src/route");
  rest = await import("../src/wire/rest");
  preact = await import("preact");
});

after(() => meta.remove());

test("base path is added once and removed at a slash", () => {
  const { withBase, withoutBase } = page;
  assert.equal(withBase("", "/ws"), "/ws");
  assert.equal(withBase("/a", "/ws"), "/a/ws");
  assert.equal(withBase("/a", "/a/ws"), "/a/ws");
  assert.equal(withBase("/a", "/ab"), "/a/ab");
  assert.equal(withoutBase("", "/ws"), "/ws");
  assert.equal(withoutBase("/a", "/a"), "/");
  assert.equal(withoutBase("/a", "/a/ws"), "/ws");
  assert.equal(withoutBase("/a", "/ab"), "/ab");
});

test("routes have no base path, the address bar has", () => {
  assert.deepEqual(router.route.value, { page: "session", id: "s1" });
  router.navigate("/admin");
  assert.deepEqual(router.route.value, { page: "admin" });
  assert.equal(location.pathname, "/tools/green/admin");
});

test("components name plain addresses", () => {
  const root = document.createElement("div");
  const draw = (child: ComponentChild) => {
    preact.render(child, root);
    return root.firstElementChild;
  };
  const href = (address: string) => draw(<a href={address}>x</a>)?.getAttribute("href");
  assert.equal(href("/sessions"), "/tools/green/sessions");
  assert.equal(href("/tools/green/sessions"), "/tools/green/sessions");
  assert.equal(href("https://other.test/x"), "https://other.test/x");
  assert.equal(href("//other.test/x"), "//other.test/x");
  assert.equal(href("#part"), "#part");
  assert.equal(draw(<img src="/api/x.png" />)?.getAttribute("src"), "/tools/green/api/x.png");
});

test("click on a link changes the page without a load", () => {
  preact.render(<a href="/sessions/s2">x</a>, document.body);
  const event = new window.MouseEvent("click", { bubbles: true, cancelable: true });
  document.querySelector("a")?.dispatchEvent(event);
  assert.equal(event.defaultPrevented, true);
  assert.deepEqual(router.route.value, { page: "session", id: "s2" });
  assert.equal(location.pathname, "/tools/green/sessions/s2");
});

test("requests and files have the base path", async (context) => {
  const asked: string[] = [];
  context.mock.method(globalThis, "fetch", async (address: string) => {
    asked.push(address);
    return new Response("{}");
  });
  await rest.getOptions();
  assert.deepEqual(asked, ["/tools/green/api/options"]);
  assert.equal(rest.fileAddress("s1", "a/b.txt"), "/tools/green/api/sessions/s1/files/a/b.txt");
});
