// The command palette: every session and every act, found by typing.

import { useMemo, useRef, useState } from "preact/hooks";
import { isComposing } from "../composing";
import { navigate } from "../route";
import { asked, type Asked } from "../state/asked";
import { current, toggleWorkspace } from "../state/current";
import { matching, sessionEntries, type PaletteEntry } from "../state/entries";
import { MOD, overlay } from "../state/keys";
import { TABS } from "../state/layout";
import { newest, sessionOf, sessions } from "../state/list";
import { canNotify, notifying, toggleNotifying } from "../state/notifying";
import { isStoppable, isWorking } from "../state/activity";
import { save } from "../save";
import { setTheme, THEMES } from "../theme";
import type { Session } from "../wire/frame";
import { exportAddress } from "../wire/manage";
import { Dialog } from "./Dialog";

export function Palette() {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const all = useMemo(
    () => [...aboutThis(), ...aboutGreenroom(), ...sessionEntries(known(), open)],
    [newest.value, sessions.value],
  );
  const found = matching(all, query);
  const chosen = Math.min(at, found.length - 1);

  const close = () => (overlay.value = null);
  const act = (entry: PaletteEntry | undefined) => {
    if (!entry) return;
    close();
    entry.act();
  };
  const keyDown = (event: KeyboardEvent) => {
    if (isComposing(event)) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const next = (chosen + step + found.length) % Math.max(1, found.length);
      setAt(next);
      list.current?.querySelector(`#entry-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      act(found[chosen]);
    }
  };

  return (
    <Dialog title="Search sessions and actions" kind="palette" onClose={close}>
      <input
        class="palette-field"
        role="combobox"
        aria-label="Search sessions and actions"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length > 0 ? `entry-${chosen}` : undefined}
        placeholder="Type to find a session or an action"
        autofocus
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={keyDown}
      />
      <ul class="palette-list" id="palette-list" role="listbox" aria-label="Found" ref={list}>
        {found.map((entry, index) => (
          <li
            key={entry.id}
            id={`entry-${index}`}
            role="option"
            aria-selected={index === chosen}
            class="palette-entry"
            onClick={() => act(entry)}
            onPointerMove={() => setAt(index)}
          >
            <span class="palette-text">{entry.text}</span>
            {entry.note && <span class="muted">{entry.note}</span>}
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="muted palette-none">Nothing matches “{query}”.</p>}
    </Dialog>
  );
}

/** The newest, and what the list shows beside them: more of them, older ones that were searched for, archived ones. */
function known(): Session[] {
  const listed = [...(newest.peek() ?? []), ...(sessions.peek() ?? [])];
  return [...new Map(listed.map((session) => [session.id, session])).values()];
}

const open = (id: string) => navigate(`/sessions/${id}`);

function aboutThis(): PaletteEntry[] {
  const shown = current.peek();
  if (!shown) return [];
  const { live, layout } = shown;
  const { agentState: state, connection, queue } = live.state.peek();
  const entry = (text: string, act: () => void, note?: string): PaletteEntry => ({ id: text, text, note, group: "This session", act });
  const session = sessionOf(live.id) ?? live.state.peek().session;
  const ask = (text: string, act: Asked["act"]) => (session ? [entry(text, () => (asked.value = { session, act }))] : []);
  const tabs = TABS.map((tab) => entry(`Show ${tab}`, () => (layout.value = { ...layout.value, folded: null, tab }), "workspace"));
  if (connection.phase === "recorded") return [...tabs, entry("Toggle the workspace", toggleWorkspace)];
  return [
    ...tabs,
    entry("Toggle the workspace", toggleWorkspace, `${MOD} J`),
    ...(isStoppable(live.state.peek()) ? [entry("Stop what runs", () => live.interrupt(), "Esc")] : []),
    ...(isWorking(state) ? [entry("Pause", () => live.pause())] : []),
    ...(state === "paused" || state === "stopped" || queue.length > 0 ? [entry("Resume", () => live.resume())] : []),
    ...ask("Rename…", "rename"),
    ...ask(session?.archived ? "Take out of the archive" : "Archive", "archive"),
    entry("Export as Markdown", () => save(exportAddress(live.id, "md"))),
    entry("Export as JSONL", () => save(exportAddress(live.id, "jsonl"))),
    ...(state === "idle" ? [entry("Stop the sandbox", () => live.stop(), "frees its memory; a message brings it back")] : []),
    ...(state === "ended" ? [] : ask("End…", "end")),
    ...ask("Delete…", "purge"),
  ];
}

function aboutGreenroom(): PaletteEntry[] {
  const entry = (text: string, act: () => void, note?: string): PaletteEntry => ({ id: text, text, note, group: "Greenroom", act });
  return [
    entry("New session", () => navigate("/sessions"), `${MOD} Shift O`),
    entry("Open a recording", () => navigate("/sessions?replay")),
    entry("Actors and sandboxes", () => navigate("/admin")),
    entry("REST API", () => navigate("/api/docs")),
    ...THEMES.map((theme) => entry(`Colours: ${theme}`, () => setTheme(theme))),
    ...(canNotify ? [entry(notifying.peek() ? "Turn notifications off" : "Turn notifications on", () => void toggleNotifying())] : []),
    entry("Keyboard shortcuts", () => (overlay.value = "shortcuts"), "?"),
  ];
}
