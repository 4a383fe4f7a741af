import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { useState } from "preact/hooks";
import { TaskOptions } from "../src/components/TaskOptions";
import type { TaskChoices } from "../src/state/startTask";
import { root, renderText, write } from "./testSession";

test("budget field keeps the typed text", async () => {
  function Home() {
    const [chosen, setChosen] = useState<TaskChoices>({});
    return <TaskOptions chosen={chosen} onChange={setChosen} />;
  }
  await renderText(<Home />);
  for (const text of ["0", "0.", "0.0", "0.05"]) {
    await write(text, "[placeholder='No limit']");
    assert.equal(root.querySelector<HTMLInputElement>("[placeholder='No limit']")?.value, text);
  }
});
