// Setting for Enter while the agent works.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { otherMode, sendMode, setSendMode } from "../src/state/sendMode";

test("send mode is queue by default, and is stored only if changed", () => {
  assert.equal(sendMode.value, "queue");
  setSendMode("steer");
  assert.equal(localStorage.getItem("greenroom.send-mode"), "steer");
  assert.equal(otherMode(sendMode.value), "queue");
  setSendMode("queue");
  assert.equal(localStorage.getItem("greenroom.send-mode"), null);
  assert.equal(otherMode(sendMode.value), "steer");
});

test("another tab changes the send mode", () => {
  const changed = (newValue: string | null) =>
    window.dispatchEvent(new window.StorageEvent("storage", { key: "greenroom.send-mode", newValue }));
  changed("steer");
  assert.equal(sendMode.value, "steer");
  changed("something else");
  assert.equal(sendMode.value, "queue");
  changed("steer");
  changed(null);
  assert.equal(sendMode.value, "queue");
});
