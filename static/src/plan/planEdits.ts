// Edits of the plan's file by the user, per session. Survives a change of the tab.

import { batch, signal } from "@preact/signals";
import { OpenedFile } from "../files/openedFile";
import { readPart, saveText, type FileEntry } from "../files/workspaceFiles";
import type { PlanRow } from "../state/rows";
import { RestError } from "../wire/rest";
import { withState, type PlanStep, type StepState } from "./planText";

/** Largest plan whose steps can be ticked, in bytes. */
const PLAN_LIMIT = 1024 * 1024;
/** Number of tries while somebody else changes the file. */
const TRIES = 4;

/** Error of a step that the file has no more. */
class StepChanged extends Error {}

/** Text that this tab has saved and the journal may not have yet. */
interface SavedPlan {
  markdown: string;
  /** Plan of the journal at that time. */
  before: PlanRow;
}

export class PlanEdits {
  readonly problem = signal("");
  /** `null`: the Markdown is not edited. */
  readonly editor = signal<OpenedFile | null>(null);
  private readonly saved = signal<SavedPlan | null>(null);
  private readonly waiting = signal(0);
  private tail: Promise<void> = Promise.resolve();

  constructor(private readonly session: string) {}

  /** Returns the newest text of the plan: the journal's, or the one just saved here. */
  shown(plan: PlanRow): string {
    const saved = this.saved.value;
    return saved && (this.waiting.value > 0 || saved.before === plan) ? saved.markdown : plan.markdown;
  }

  /** Changes the state of a step in the file. Several changes happen one after the other. */
  setState(plan: PlanRow, step: PlanStep, state: StepState): Promise<void> {
    const markdown = withState(this.shown(plan), step, state);
    batch(() => {
      this.problem.value = "";
      this.waiting.value += 1;
      if (markdown !== null) this.saved.value = { markdown, before: plan };
    });
    this.tail = this.tail.then(async () => {
      try {
        await this.change(plan, step, state);
      } catch (error) {
        // After a conflict, the present plan is shown.
        if (!(error instanceof StepChanged)) this.saved.value = null;
        this.problem.value = (error as Error).message;
      } finally {
        this.waiting.value -= 1;
      }
    });
    return this.tail;
  }

  /** Opens the file in the editor. */
  edit(plan: PlanRow): void {
    const file = new OpenedFile(this.session, fileOf(plan));
    file.onSaved = () => {
      const view = file.view.peek();
      // Called before the view has the new text.
      const markdown = file.edit.peek()?.text ?? (view.kind === "text" ? view.text : plan.markdown);
      this.saved.value = { markdown, before: plan };
    };
    batch(() => {
      this.problem.value = "";
      this.editor.value = file;
    });
  }

  closeEditor(): void {
    this.editor.peek()?.close();
    this.editor.value = null;
  }

  private async change(plan: PlanRow, step: PlanStep, state: StepState): Promise<void> {
    const file = fileOf(plan);
    for (let tries = 1; ; tries += 1) {
      const present = await this.read(file);
      const markdown = withState(present?.text ?? plan.markdown, step, state);
      if (markdown === null) {
        if (present) this.saved.value = { markdown: present.text, before: plan };
        throw new StepChanged("The step changed meanwhile. Look again.");
      }
      try {
        await saveText(this.session, file, markdown, present?.etag ?? null);
        return;
      } catch (error) {
        if (!(error instanceof RestError) || error.status !== 412 || tries >= TRIES) throw error;
      }
    }
  }

  /** Reads the file. `null`: it does not exist. */
  private async read(file: FileEntry): Promise<{ text: string; etag: string | null } | null> {
    try {
      const { bytes, total, etag } = await readPart(this.session, file, { from: 0, length: PLAN_LIMIT });
      if (total > PLAN_LIMIT) throw new Error("The plan is too large to tick.");
      return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), etag };
    } catch (error) {
      if (error instanceof RestError && error.status === 404) return null;
      throw error;
    }
  }
}

/** Reports if the plan's file is inside the workspace. */
export const isInWorkspace = ({ path }: PlanRow): boolean => path !== undefined && path !== "" && !path.startsWith("/");

function fileOf({ path = "" }: PlanRow): FileEntry {
  return { path, encoded: false, name: path.split("/").at(-1) ?? "", kind: "file", bytes: 0, modified: null, executable: false, hidden: true, etag: null };
}

const edits = new Map<string, PlanEdits>();

/** Returns the edits of a session's plan. */
export function planEditsOf(session: string): PlanEdits {
  const known = edits.get(session) ?? new PlanEdits(session);
  edits.set(session, known);
  return known;
}
