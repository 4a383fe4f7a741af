// The command palette: every session and every act, found by typing.

import { useMemo, useRef, useState } from "preact/hooks";
import { isComposing } from "../composing";
import { navigate } from "../route";
import { asked, type Asked } from "../state/asked";
import { current, currentState, toggleWorkspace } from "../state/current";
import { matching, sessionEntries, type PaletteEntry } from "../state/entries";
import { MOD, overlay } from "../state/keys";
import { TABS } from "../state/layout";
import { newest, sessionOf, sessions, showArchived, toggleArchived } from "../state/list";
import { toggleSidebar } from "../state/sidebar";
import { canNotify, notifying, toggleNotifying } from "../state/notifying";
import { isResumable, isStoppable, isWorking } from "../state/activity";
import { save } from "../save";
import { setTheme, THEMES } from "../theme";
import type { Session } from "../wire/frame";
import { exportAddress } from "../wire/manage";
import { Dialog } from "./Dialog";

interface Shown extends PaletteEntry {
  /** It could be done when it was found. */
  gone?: boolean;
}

export function Palette() {
  const [query, setQuery] = useState("");
  const [chosenId, choose] = useState<string | null>(null);
  const [missed, setMissed] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const shown = useRef<readonly Shown[]>([]);
  const all = useMemo(offered, [newest.value, sessions.value, current.value, currentState.value, missed]);
  const found = useMemo(() => inPlace(shown.current, all, query), [all, query]);
  shown.current = found;
  const chosen = Math.max(0, found.findIndex(({ id }) => id === chosenId));

  const close = () => (overlay.value = null);
  const act = (entry: Shown | undefined) => {
    if (!entry) return;
    // As it is now: it may have become impossible since it was found.
    const now = offered().find(({ id }) => id === entry.id);
    if (!now) return setMissed(missed + 1);
    close();
    now.act();
  };
  const keyDown = (event: KeyboardEvent) => {
    if (isComposing(event)) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const next = (chosen + step + found.length) % Math.max(1, found.length);
      choose(found[next]?.id ?? null);
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
        dir="auto"
        role="combobox"
        aria-label="Search sessions and actions"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length > 0 ? `entry-${chosen}` : undefined}
        placeholder="Type to find a session or an action"
        autofocus
        value={query}
        onInput={(event) => {
          shown.current = [];
          choose(null);
          setQuery(event.currentTarget.value);
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
            aria-disabled={entry.gone}
            class={entry.gone ? "palette-entry muted" : "palette-entry"}
            onClick={() => act(entry)}
            onPointerMove={() => choose(entry.id)}
          >
            <span class="palette-text" dir="auto">{entry.text}</span>
            {entry.gone ? <span>not possible now</span> : entry.note && <span class="muted">{entry.note}</span>}
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="muted palette-none">Nothing matches “{query}”.</p>}
    </Dialog>
  );
}

/** What was found stays where it is: somebody is about to press it. What has come since stands below. */
function inPlace(shown: readonly Shown[], all: readonly PaletteEntry[], query: string): Shown[] {
  const now = new Map(all.map((entry) => [entry.id, entry]));
  const places = new Set(shown.map(({ id }) => id));
  return [
    ...shown.map((entry) => now.get(entry.id) ?? { ...entry, gone: true }),
    ...matching(all, query).filter(({ id }) => !places.has(id)),
  ];
}

const offered = (): PaletteEntry[] => [...aboutThis(), ...aboutGreenroom(), ...sessionEntries(known(), open)];

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
  const { agentState: state, connection } = live.state.peek();
  const entry = (text: string, act: () => void, note?: string): PaletteEntry => ({
    id: `${live.id} ${text}`,
    text,
    note,
    group: "This session",
    act,
  });
  const session = sessionOf(live.id) ?? live.state.peek().session;
  const ask = (text: string, act: Asked["act"]) => (session ? [entry(text, () => (asked.value = { session, act }))] : []);
  const tabs = TABS.map((tab) => entry(`Show ${tab}`, () => (layout.value = { ...layout.value, folded: null, tab }), "workspace"));
  if (connection.phase === "recorded") return [...tabs, entry("Toggle the workspace", toggleWorkspace)];
  return [
    ...tabs,
    entry("Toggle the workspace", toggleWorkspace, `${MOD} J`),
    ...(isStoppable(live.state.peek()) ? [entry("Stop what runs", () => live.interrupt(), "Esc")] : []),
    ...(isWorking(state) ? [entry("Pause", () => live.pause())] : []),
    ...(isResumable(live.state.peek()) ? [entry("Resume", () => live.resume())] : []),
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
    entry("Toggle the list of sessions", toggleSidebar, `${MOD} B`),
    entry(showArchived.peek() ? "Hide the archived sessions" : "Show the archived sessions", toggleArchived),
    entry("Open a recording", () => navigate("/sessions?replay")),
    entry("Actors and sandboxes", () => navigate("/admin")),
    entry("REST API", () => navigate("/api/docs")),
    ...THEMES.map((theme) => entry(`Colours: ${theme}`, () => setTheme(theme))),
    ...(canNotify ? [entry(notifying.peek() ? "Turn notifications off" : "Turn notifications on", () => void toggleNotifying())] : []),
    entry("Keyboard shortcuts", () => (overlay.value = "shortcuts"), "?"),
  ];
}
