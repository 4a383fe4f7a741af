// Sign-in page: its field, a wrong token, and the sign-in.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { SignedOut } from "../src/components/SignedOut";
import { readSecret } from "../src/wire/secret";
import { press, root, settled } from "./testSession";

test("the field says that a token is wrong, keeps it, and stores the secret of the right one", async () => {
  const asked: [string, unknown][] = [];
  globalThis.fetch = (async (address: string, { method, body }: RequestInit) => {
    asked.push([`${method} ${address}`, JSON.parse(String(body))]);
    if (asked.length > 1) return new Response('{"secret":"1.2"}');
    return new Response('{"error":{"code":"unauthenticated","message":"no"}}', { status: 401 });
  }) as typeof fetch;
  render(<SignedOut />, root);
  await settled();
  const field = root.querySelector<HTMLInputElement>("#token")!;
  assert.deepEqual([field.type, field.autocomplete], ["password", "current-password"]);
  assert.equal(document.activeElement, field);
  press("Sign in");
  await settled();
  assert.equal(asked.length, 0, "an empty field sends nothing");

  field.value = " wrong ";
  press("Sign in");
  await settled();
  assert.equal(root.querySelector("[role=alert]")?.textContent, "That token is not valid here.");
  assert.deepEqual([field.value, field.getAttribute("aria-describedby"), readSecret()], [" wrong ", "token-problem", ""]);

  field.value = "right";
  press("Sign in");
  await settled();
  assert.deepEqual(asked, [
    ["POST /api/sign-in", { token: "wrong" }],
    ["POST /api/sign-in", { token: "right" }],
  ]);
  assert.equal(readSecret(), "1.2");
});
