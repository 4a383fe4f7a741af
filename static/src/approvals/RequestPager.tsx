// Number of the shown request among the open ones, and the buttons to the others.

import { Icon } from "../components/Icon";

interface RequestPagerProps {
  requests: readonly string[];
  shown: string;
  onShow: (request: string) => void;
}

export function RequestPager({ requests, shown, onShow }: RequestPagerProps) {
  const at = requests.indexOf(shown);
  const count = requests.length;
  if (count < 2) return null;
  const step = (by: number) => onShow(requests[(at + by + count) % count]!);
  return (
    <span class="confirm-pager">
      <button type="button" class="icon-button back" aria-label="Previous request" title="Previous request" onClick={() => step(-1)}>
        <Icon name="chevron" />
      </button>
      <span class="muted">
        {at + 1} of {count}
      </span>
      <button type="button" class="icon-button" aria-label="Next request" title="Next request" onClick={() => step(1)}>
        <Icon name="chevron" />
      </button>
    </span>
  );
}
