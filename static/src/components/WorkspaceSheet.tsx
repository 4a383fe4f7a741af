// Workspace over the whole page, on a narrow screen. Escape, the back gesture and its button close
// it.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Workspace, type WorkspaceProps } from "./Workspace";

/** Mark of the history entry that the back gesture removes. */
interface SheetState {
  sheet?: true;
}

const isSheetEntry = () => (history.state as SheetState | null)?.sheet === true;

export function WorkspaceSheet({ live, layout, onChange }: WorkspaceProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const close = useRef(() => {});
  close.current = () => onChange({ ...layout, folded: "workspace" });

  // Modal: the focus stays inside, and a closed dialog gives it back.
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);

  useEffect(() => {
    if (!isSheetEntry()) history.pushState({ sheet: true } satisfies SheetState, "");
    const back = () => close.current();
    addEventListener("popstate", back);
    return () => {
      removeEventListener("popstate", back);
      if (isSheetEntry()) history.back();
    };
  }, []);

  return (
    <dialog ref={dialog} class="workspace-sheet" aria-label="Workspace" onClose={() => dialog.current && close.current()}>
      <Workspace live={live} layout={layout} onChange={onChange} />
    </dialog>
  );
}
