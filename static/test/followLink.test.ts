import assert from "node:assert/strict";
import { test } from "node:test";
import "./testWindow";

test("a pressed link to a file is followed with a ticket", async () => {
  const asked: string[] = [];
  globalThis.fetch = (async (address: string, { method, body }: RequestInit) => {
    asked.push(`${method} ${address} ${body}`);
    return new Response('{"ticket":"f00d","expires_at":""}', { status: 201 });
  }) as typeof fetch;
  const followed: string[] = [];
  HTMLAnchorElement.prototype.click = function () {
    followed.push(`${this.pathname}${this.search} ${this.hasAttribute("download")}`);
  };
  const tab = { opener: {} as unknown, location: { replace: (address: string) => followed.push(`tab ${address}`) } };
  Object.assign(globalThis, { open: () => tab });
  await import("../src/route");
  const { loadLazy } = await import("../src/loadLazy");
  await loadLazy();
  const press = async (markup: string, how: MouseEventInit = {}, kind = "click") => {
    document.body.innerHTML = markup;
    const event = new window.MouseEvent(kind, { bubbles: true, cancelable: true, ...how });
    document.querySelector("a")!.dispatchEvent(event);
    await new Promise((resolve) => setTimeout(resolve));
    await new Promise((resolve) => setTimeout(resolve));
    return event.defaultPrevented;
  };

  assert.equal(await press(`<a href="/api/sessions/a/export?format=md" download>x</a>`), true);
  assert.deepEqual(asked.splice(0), ['POST /api/tickets {"path":"/api/sessions/a/export?format=md"}']);
  assert.deepEqual(followed.splice(0), ["/api/sessions/a/export?format=md&ticket=f00d true"]);

  await press(`<a href="/api/sessions/a/files/a%20b.png" target="_blank">x</a>`);
  assert.deepEqual(followed.splice(0), ["tab /api/sessions/a/files/a%20b.png?ticket=f00d"]);
  assert.equal(tab.opener, null);
  assert.equal(await press(`<a href="/api/sessions/a/files/b">x</a>`, { button: 1 }, "auxclick"), true);
  assert.deepEqual(followed.splice(0), ["tab /api/sessions/a/files/b?ticket=f00d"]);
  await press(`<a href="/api/sessions/a/contents/c" target="_blank">x</a>`);
  assert.deepEqual(followed.splice(0), ["/api/sessions/a/contents/c?ticket=f00d true"]);
  asked.splice(0);

  for (const [markup, how] of [
    [`<a href="https://evil.test/api/sessions/a/export">x</a>`, {}],
    [`<a href="/api/sessions/a/export">x</a>`, { button: 2 }],
  ] as const) {
    assert.equal(await press(markup, how, how ? "auxclick" : "click"), false, markup);
  }
  assert.deepEqual([asked, followed], [[], []]);
});
