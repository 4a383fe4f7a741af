// Start page with one field for a task.

import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { TaskChoices } from "../state/startTask";
import { defaultModel } from "../state/defaultModel";
import { EFFORT_NAMES, EFFORTS } from "../state/effort";
import { newest } from "../state/sessionList";
import { loadOptions, options } from "../state/serverOptions";
import { attachFiles, choices, files, missing, missingText, openTask, problem, start, starting, startWithoutFiles, task, writeTask } from "../state/taskDraft";
import type { EffortChoice } from "../wire/event";
import { ModeChooser } from "../approvals/ModeChooser";
import { RepositoryFields } from "../repository/RepositoryFields";
import { DropZone } from "./DropZone";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { ErrorNotice } from "./ErrorNotice";
import { SidebarButton } from "./SidebarButton";
import { TextField } from "./TextField";

const TaskFiles = lazy((later) => later.TaskFiles);
const TaskOptions = lazy((later) => later.TaskOptions);

const EXAMPLES = [
  "Write a bash script that prints hello, and run it",
  "Make a small Python program that finds prime numbers, with tests",
  "List the files in the workspace and explain them",
];

export function Home() {
  const [unfolded, setUnfolded] = useState(hasMore);
  const [fromRepository, setFromRepository] = useState(() => choices.peek().repo !== undefined);

  useLayoutEffect(openTask, []);
  useEffect(() => void loadOptions(), []);

  const choose = (to: TaskChoices) => (choices.value = to);

  return (
    <DropZone hint="Drop to attach to your task" onFiles={attachFiles}>
      <div class="home">
        <SidebarButton />
        <div class="home-middle">
          <h1>What should be done?</h1>
          <p class="muted">An agent works in its own sandbox. Watch, steer or interrupt it.</p>
          <TextField
            label="Task"
            placeholder="Describe a task"
            value={task.value}
            focus
            rows={3}
            onChange={writeTask}
            onSend={() => void start()}
            onFiles={attachFiles}
            sendLabel={starting.value ? "Starting…" : missing.value ? "Some files are missing" : "Start"}
            sendDisabled={starting.value || missing.value !== null || !task.value.trim()}
          />
          {files.value.length > 0 && <TaskFiles files={files.value} model={choices.value.model ?? defaultModel.value} onChange={(left) => (files.value = left)} />}
          <div class="task-choices">
            <ModelChoice chosen={choices.value} onChange={choose} />
            <EffortSelect chosen={choices.value} onChange={choose} />
            <TaskMode chosen={choices.value} onChange={choose} />
            <button type="button" class="fold" aria-expanded={fromRepository} onClick={() => setFromRepository(!fromRepository)}>
              <Icon name="chevron" /> Repository
              {!fromRepository && choices.value.repo && <bdi class="chosen-repository">{choices.value.repo}</bdi>}
            </button>
            <button type="button" class="fold" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>
              <Icon name="chevron" /> More options
            </button>
          </div>
          {fromRepository && <RepositoryFields chosen={choices.value} onChange={choose} />}
          {unfolded && <TaskOptions chosen={choices.value} onChange={choose} />}
          {missing.value && (
            <ErrorNotice
              text={missingText(missing.value)}
              retryLabel={missing.value.names.length === 1 ? "Start without it" : "Start without them"}
              onRetry={() => void startWithoutFiles()}
            />
          )}
          {problem.value && <ErrorNotice text={problem.value} onRetry={() => void start()} />}
          <Examples onChoose={writeTask} />
        </div>
      </div>
    </DropZone>
  );
}

/** Reports if a folded option is set. */
function hasMore(): boolean {
  const { model: _, effort: __, mode: ___, repo: ____, ref: _____, ...more } = choices.peek();
  return Object.values(more).some((value) => value !== undefined);
}

function ModelChoice({ chosen, onChange }: { chosen: TaskChoices; onChange: (chosen: TaskChoices) => void }) {
  const offered = options.value;
  const models = offered?.models ?? [];
  if (models.length === 0) return <span class="muted" />;
  return (
    <label class="model-choice">
      <span class="muted">Model</span>
      <select
        class="field"
        value={chosen.model ?? defaultModel.value ?? offered?.defaults.model}
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

function EffortSelect({ chosen, onChange }: { chosen: TaskChoices; onChange: (chosen: TaskChoices) => void }) {
  const { models = [], defaults } = options.value ?? {};
  if (models.length === 0) return null;
  return (
    <label class="model-choice">
      <span class="muted">Effort</span>
      <select
        class="field"
        value={chosen.effort ?? defaults?.effort ?? "default"}
        onChange={(event) => onChange({ ...chosen, effort: event.currentTarget.value as EffortChoice })}
      >
        {EFFORTS.map((effort) => (
          <option key={effort} value={effort}>
            {EFFORT_NAMES[effort]}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Mode of the new session. A server of an earlier version has none. */
function TaskMode({ chosen, onChange }: { chosen: TaskChoices; onChange: (chosen: TaskChoices) => void }) {
  const mode = chosen.mode ?? options.value?.defaults?.mode;
  if (!mode) return null;
  return <ModeChooser mode={mode} onChoose={(mode) => onChange({ ...chosen, mode })} />;
}

/** Examples for a new user. Hidden ones keep their place, so nothing moves. */
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
