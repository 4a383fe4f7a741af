// Where a session begins: one field for the task.

import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { Chosen } from "../state/begin";
import { newest } from "../state/list";
import { loadOptions, options } from "../state/options";
import { attach, chosen, files, lost, lostText, openTask, problem, start, starting, startWithout, task, write } from "../state/task";
import { DropZone } from "./DropZone";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { Problem } from "./Problem";
import { SidebarButton } from "./SidebarButton";
import { TextField } from "./TextField";

const TaskFiles = lazy((later) => later.TaskFiles);
const TaskOptions = lazy((later) => later.TaskOptions);

const EXAMPLES = [
  "Write a bash script that prints hello, and run it",
  "Make a small Python program that finds prime numbers, with tests",
  "Look around in the workspace and tell me what is there",
];

export function Home() {
  const [unfolded, setUnfolded] = useState(hasMore);

  useLayoutEffect(openTask, []);
  useEffect(() => void loadOptions(), []);

  const choose = (to: Chosen) => (chosen.value = to);

  return (
    <DropZone hint="Drop to attach to your task" onFiles={attach}>
      <div class="home">
        <SidebarButton />
        <div class="home-middle">
          <h1>What should be done?</h1>
          <p class="muted">An agent works on it in a sandbox of its own, while you watch, steer, and stop it.</p>
          <TextField
            label="Task"
            placeholder="Describe a task"
            value={task.value}
            focus
            rows={3}
            onChange={write}
            onSend={() => void start()}
            onFiles={attach}
            sendLabel={starting.value ? "Starting…" : lost.value ? "Not all files are there" : "Start"}
            sendDisabled={starting.value || lost.value !== null || !task.value.trim()}
          />
          {files.value.length > 0 && <TaskFiles files={files.value} onChange={(left) => (files.value = left)} />}
          <div class="task-choices">
            <ModelChoice chosen={chosen.value} onChange={choose} />
            <button type="button" class="fold" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>
              <Icon name="chevron" /> More options
            </button>
          </div>
          {unfolded && <TaskOptions chosen={chosen.value} onChange={choose} />}
          {lost.value && (
            <Problem
              text={lostText(lost.value)}
              retryLabel={lost.value.names.length === 1 ? "Start without it" : "Start without them"}
              onRetry={() => void startWithout()}
            />
          )}
          {problem.value && <Problem text={problem.value} onRetry={() => void start()} />}
          <Examples onChoose={write} />
        </div>
      </div>
    </DropZone>
  );
}

/** Whether something was chosen that is folded away. */
function hasMore(): boolean {
  const { model: _, ...more } = chosen.peek();
  return Object.values(more).some((value) => value !== undefined);
}

function ModelChoice({ chosen, onChange }: { chosen: Chosen; onChange: (chosen: Chosen) => void }) {
  const offered = options.value;
  const models = offered?.models ?? [];
  if (models.length === 0) return <span class="muted" />;
  return (
    <label class="model-choice">
      <span class="muted">Model</span>
      <select
        class="field"
        value={chosen.model ?? offered?.defaults.model}
        onChange={(event) => onChange({ ...chosen, model: event.currentTarget.value })}
      >
        {models.map(({ name, demo, needs }) => (
          <option key={name} value={name} disabled={Boolean(needs)}>
            {demo ? `${name} (scripted, needs no key)` : needs ? `${name} (needs ${needs})` : name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** For those who have not begun yet; who has sessions knows what to write. Seen or not they keep their place: nothing jumps. */
function Examples({ onChoose }: { onChoose: (task: string) => void }) {
  const isNew = newest.value !== null && newest.value.length <= 3;
  return (
    <ul class={isNew ? "examples" : "examples unseen"} aria-label="Examples">
      {EXAMPLES.map((example) => (
        <li key={example}>
          <button type="button" onClick={() => onChoose(example)}>
            {example}
          </button>
        </li>
      ))}
    </ul>
  );
}
