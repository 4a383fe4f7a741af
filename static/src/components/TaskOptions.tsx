// Options of a new session. The server chooses for empty fields.

import type { TaskChoices } from "../state/startTask";
import { options } from "../state/serverOptions";

interface TaskOptionsProps {
  chosen: TaskChoices;
  onChange: (chosen: TaskChoices) => void;
}

export function TaskOptions({ chosen, onChange }: TaskOptionsProps) {
  const offered = options.value;
  const set = (change: Partial<TaskChoices>) => onChange({ ...chosen, ...change });
  const text = (name: "image" | "directory", value: string) => set({ [name]: value.trim() === "" ? undefined : value });
  return (
    <fieldset class="task-options">
      <legend class="visually-hidden">Options of the new session</legend>
      {(offered?.agents.length ?? 0) > 1 && (
        <label>
          <span>Agent</span>
          <select class="field" value={chosen.agent ?? offered?.defaults.agent} onChange={(event) => set({ agent: event.currentTarget.value })}>
            {offered?.agents.map(({ name }) => <option key={name}>{name}</option>)}
          </select>
        </label>
      )}
      {offered?.sandbox.driver === "docker" && (
        <label>
          <span>Image</span>
          <input
            class="field"
            placeholder={offered.defaults.image}
            value={chosen.image ?? ""}
            onInput={(event) => text("image", event.currentTarget.value)}
          />
        </label>
      )}
      {(offered?.analyzers?.length ?? 0) > 1 && (
        <label>
          <span>Security analyzer</span>
          <select class="field" value={chosen.analyzer ?? offered?.defaults.analyzer} onChange={(event) => set({ analyzer: event.currentTarget.value })}>
            {offered?.analyzers?.map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
      )}
      <label>
        <span>Directory</span>
        <input
          class="field"
          placeholder="/workspace"
          value={chosen.directory ?? ""}
          onInput={(event) => text("directory", event.currentTarget.value)}
        />
      </label>
      <label>
        <span>Budget in USD</span>
        <input
          class="field"
          inputMode="decimal"
          placeholder="No limit"
          value={chosen.budget ?? ""}
          onInput={(event) => set({ budget: event.currentTarget.value })}
        />
      </label>
      {offered && <p class="muted isolation">{offered.sandbox.isolation}</p>}
    </fieldset>
  );
}
