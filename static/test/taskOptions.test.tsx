import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { useState } from "preact/hooks";
import { TaskOptions } from "../src/components/TaskOptions";
import type { Chosen } from "../src/state/begin";
import { root, shown, write } from "./stage";

test("a budget stands as it is typed", async () => {
  function Home() {
    const [chosen, setChosen] = useState<Chosen>({});
    return <TaskOptions chosen={chosen} onChange={setChosen} />;
  }
  await shown(<Home />);
  for (const text of ["0", "0.", "0.0", "0.05"]) {
    await write(text, "[placeholder='no limit']");
    assert.equal(root.querySelector<HTMLInputElement>("[placeholder='no limit']")?.value, text);
  }
});
