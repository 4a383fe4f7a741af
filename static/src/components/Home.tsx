// Where a session begins: one field for the task.

import { useRef, useState } from "preact/hooks";
import { newId } from "../id";
import { navigate } from "../route";
import { refreshSessions } from "../state/list";
import { createSession } from "../wire/rest";
import { Problem } from "./Problem";
import { SidebarButton } from "./SidebarButton";
import { TextField } from "./TextField";

const DRAFT = "greenroom.draft.new";

const EXAMPLES = [
  "Write a bash script that prints hello, and run it",
  "Make a small Python program that finds prime numbers, with tests",
  "Look around in the workspace and tell me what is there",
];

export function Home() {
  const [task, setTask] = useState(() => localStorage.getItem(DRAFT) ?? "");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  // One key for one task: trying again after a lost answer does not start it twice.
  const attempt = useRef({ task: "", key: "" });

  const change = (text: string) => {
    setTask(text);
    localStorage.setItem(DRAFT, text);
  };

  const start = async () => {
    const text = task.trim();
    if (!text || busy) return;
    if (attempt.current.task !== text) attempt.current = { task: text, key: newId() };
    setBusy(true);
    setProblem(null);
    try {
      const session = await createSession(text, attempt.current.key);
      localStorage.removeItem(DRAFT);
      navigate(`/sessions/${session.id}`);
      void refreshSessions();
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
          sendLabel={busy ? "Starting…" : "Start"}
          sendDisabled={busy || !task.trim()}
        />
        {problem && <Problem text={problem} onRetry={() => void start()} />}
        <ul class="examples" aria-label="Examples">
          {EXAMPLES.map((example) => (
            <li key={example}>
              <button type="button" onClick={() => change(example)}>
                {example}
              </button>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}
