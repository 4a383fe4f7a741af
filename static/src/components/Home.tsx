// Where a session begins: one field for the task.

import { useEffect, useRef, useState } from "preact/hooks";
import { keep } from "../keep";
import { navigate } from "../route";
import { newest } from "../state/list";
import type { Attempt, Chosen } from "../state/begin";
import { loadOptions, options } from "../state/options";
import { DropZone } from "./DropZone";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { Problem } from "./Problem";
import { SidebarButton } from "./SidebarButton";
import { TextField } from "./TextField";

const TaskFiles = lazy((later) => later.TaskFiles);
const TaskOptions = lazy((later) => later.TaskOptions);

/** Where the task that is being written is kept over a reload. */
const DRAFT = "greenroom.draft.new";

const EXAMPLES = [
  "Write a bash script that prints hello, and run it",
  "Make a small Python program that finds prime numbers, with tests",
  "Look around in the workspace and tell me what is there",
];

export function Home() {
  const [task, setTask] = useState(() => localStorage.getItem(DRAFT) ?? "");
  const [files, setFiles] = useState<readonly File[]>([]);
  const [chosen, setChosen] = useState<Chosen>({});
  const [unfolded, setUnfolded] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const attempt = useRef<Attempt | null>(null);

  useEffect(() => void loadOptions(), []);

  const change = (text: string) => {
    setTask(text);
    keep(DRAFT, text);
  };

  const attach = (more: readonly File[]) => setFiles([...files, ...more]);

  const start = async () => {
    if (!task.trim() || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      const { begin } = await import("../later");
      const id = await begin(attempt, { ...chosen, task: task.trim() }, files);
      keep(DRAFT, "");
      navigate(`/sessions/${id}`);
    } catch (error) {
      setProblem((error as Error).message);
      setBusy(false);
    }
  };

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
            value={task}
            focus
            rows={3}
            onChange={change}
            onSend={() => void start()}
            onFiles={attach}
            sendLabel={busy ? "Starting…" : "Start"}
            sendDisabled={busy || !task.trim()}
          />
          {files.length > 0 && <TaskFiles files={files} onChange={setFiles} />}
          <div class="task-choices">
            <ModelChoice chosen={chosen} onChange={setChosen} />
            <button type="button" class="fold" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>
              <Icon name="chevron" /> More options
            </button>
          </div>
          {unfolded && <TaskOptions chosen={chosen} onChange={setChosen} />}
          {problem && <Problem text={problem} onRetry={() => void start()} />}
          <Examples onChoose={change} />
        </div>
      </div>
    </DropZone>
  );
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
