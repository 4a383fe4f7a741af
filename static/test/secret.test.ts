import assert from "node:assert/strict";
import { test } from "node:test";
import "./testWindow";

document.documentElement.dataset.server = "ab12";
document.body.innerHTML = `<script id="given" type="application/json">{"secret":"1.2"}</script>`;
history.replaceState(null, "", "/sessions?replay=/a/b&token=t0ken&x=%2F#part");

test("a sign-in link leaves its secret in storage and the token nowhere", async () => {
  await import("../src/wire/takeSignIn");
  const { readSecret, secretHeaders, socketProtocols, lacksSecret, storeSecret } = await import("../src/wire/secret");
  assert.equal(location.pathname + location.search + location.hash, "/sessions?replay=/a/b&x=%2F#part");
  assert.equal(document.getElementById("given")?.textContent, "", "nothing stays in the page");
  assert.equal(localStorage.getItem("greenroom-secret-ab12"), "1.2");
  assert.deepEqual(secretHeaders(), { "X-Greenroom-Secret": "1.2" });
  assert.deepEqual(socketProtocols(), ["greenroom", "secret.1.2"]);
  assert.equal(lacksSecret(), false);

  localStorage.setItem("greenroom-secret-ab12", "3.4");
  assert.equal(readSecret(), "3.4", "as another tab left it");
  storeSecret("");
  assert.equal(localStorage.getItem("greenroom-secret-ab12"), null);
  assert.deepEqual([secretHeaders(), socketProtocols(), lacksSecret()], [{}, ["greenroom"], true]);
});

test("a browser that denies storage keeps the secret until the page closes", async () => {
  const { readSecret, storeSecret } = await import("../src/wire/secret");
  const { localStorage: real } = globalThis;
  const denied = () => {
    throw new Error("denied");
  };
  Object.assign(globalThis, { localStorage: { getItem: denied, setItem: denied, removeItem: denied } });
  storeSecret("5.6");
  assert.equal(readSecret(), "5.6");
  storeSecret("");
  assert.equal(readSecret(), "");
  Object.assign(globalThis, { localStorage: real });
});
