"""Names that do something where they are not taken for plain text."""

from __future__ import annotations

MARK = "OOMCTLMARK"
"""In every name that must not come out as it went in."""

NAMES = (
    f"\x1b[31m{MARK}\x1b[0m",
    f"\x1b]8;;http://evil.example/{MARK}\x1b\\click\x1b]8;;\x1b\\",
    f"\x1b]0;{MARK}\x07",
    f"\x1b[2J\x1b[H{MARK}",
    f"\x9b31m{MARK}",
    f"\u202e{MARK}\u202c\u2066x\u2069",
    f"a\x00\x07\x08\x7f{MARK}",
    f"line\r\nbreak\u2028{MARK}\u0085",
    f"[red]{MARK}[/red]",
    f"[/app/{MARK}.py]",
    f":100: {MARK} :smile:",
    f"<script>{MARK}</script>",
    f'"><img src=x onerror={MARK}>',
    f"</script><script>{MARK}",
    f"<!-- {MARK} --><!--",
    f"{{{{ {MARK} }}}}{{% for %}}",
    f"=cmd|'/c {MARK}'!A1",
    f"+{MARK}()",
    f"@everyone {MARK} #1",
    f"`{MARK}` **bold** ![x](http://evil.example/{MARK})",
    f"| {MARK} | a || b |",
    f"javascript:{MARK}",
    f"../../../../etc/{MARK}",
    f"C:\\Users\\{MARK}\\..\\..",
    f"%s%n{MARK}%d{{0}}",
    "\ud800\udfff",
    "\U000e0001\u200b\ufeff",
    "e" + "\u0301" * 300,
    "x" * 70_000,
    "",
    " ",
    "…" * 50,
    "漢字" * 100,
)
