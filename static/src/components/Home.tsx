// Where a session begins: one field for the task.

import { useEffect, useRef, useState } from "preact/hooks";
import { navigate } from "../route";
import { sessions } from "../state/list";
import { begin, draft, type Attempt } from "../state/begin";
import { loadOptions, options } from "../state/options";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { Problem } from "./Problem";
import { SidebarButton } from "./SidebarButton";
import type { Chosen } from "./TaskOptions";
import { TextField } from "./TextField";

const TaskOptions = lazy(() => import("../later").then((loaded) => loaded.TaskOptions));

const EXAMPLES = [
  "Write a bash script that prints hello, and run it",
  "Make a small Python program that finds prime numbers, with tests",
  "Look around in the workspace and tell me what is there",
];

export function Home() {
  const [task, setTask] = useState(draft.read);
  const [files, setFiles] = useState<readonly File[]>([]);
  const [chosen, setChosen] = useState<Chosen>({});
  const [unfolded, setUnfolded] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const attempt = useRef<Attempt | null>(null);

  useEffect(() => void loadOptions(), []);

  const change = (text: string) => {
    setTask(text);
    draft.keep(text);
  };

  const start = async () => {
    if (!task.trim() || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      const id = await begin(attempt, { ...chosen, task: task.trim() }, files);
      draft.keep("");
      navigate(`/sessions/${id}`);
    } catch (error) {
      setProblem((error as Error).message);
      setBusy(false);
    }
  };

  return (
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
          onFiles={(more) => setFiles([...files, ...more])}
          sendLabel={busy ? "Starting…" : "Start"}
          sendDisabled={busy || !task.trim()}
        />
        {files.length > 0 && <Files files={files} onChange={setFiles} />}
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

function Files({ files, onChange }: { files: readonly File[]; onChange: (files: readonly File[]) => void }) {
  return (
    <ul class="attachments" aria-label="Attached files">
      {files.map((file) => (
        <li key={file.name} class="attachment">
          <Icon name="file" />
          <span class="attachment-name">{file.name}</span>
          <button
            type="button"
            class="icon-button"
            aria-label={`Remove ${file.name}`}
            title="Remove"
            onClick={() => onChange(files.filter((other) => other !== file))}
          >
            <Icon name="cross" />
          </button>
        </li>
      ))}
    </ul>
  );
}

/** For those who have not begun yet; who has sessions knows what to write. */
function Examples({ onChoose }: { onChoose: (task: string) => void }) {
  if (sessions.value && sessions.value.length > 3) return null;
  return (
    <ul class="examples" aria-label="Examples">
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
