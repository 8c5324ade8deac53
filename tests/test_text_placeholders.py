"""Answers that name code instead of writing it are noticed; ordinary comments are not."""

import pytest

from lookahead_edit.text_placeholders import placeholder_lines


@pytest.mark.parametrize(
    "line",
    [
        "# ... existing code ...",
        "    // ... existing code ...",
        "// … rest of the file",
        "# ...",
        "/* ... */",
        " * ... other methods ...",
        "<!-- existing code -->",
        "{/* ... existing JSX code ... */}",
        "-- remaining code stays the same",
        "... existing code ...",
        "[... rest of file unchanged ...]",
        "# rest of code unchanged",
        "// Rest of the code remains unchanged.",
        "# (rest of the code unchanged)",
        "// other methods remain unchanged",
        "# ... (other functions)",
        "# ... rest of your code here",
        "# ... (keep existing implementation)",
        "# Keep the existing code",
        "// ... same as before",
        "# Existing code...",
        "# ... omitted for brevity ...",
        "; ... unchanged ...",
    ],
)
def test_a_placeholder_is_found(line):
    assert placeholder_lines("a\n", f"a\r\n{line}\r\nb\r\n") == [(2, line.strip())]


@pytest.mark.parametrize(
    "line",
    [
        "...",
        "def f(): ...",
        "x[..., 0] = 1",
        "...rest",
        "...existing,",
        "{ ...existing, code }",
        'print("...")',
        "# Loading existing files...",
        "# TODO: ... and more",
        "# ...but keep the existing value",
        "# The file is unchanged",
        "# Check the rest of the line",
        "# Existing imports are sorted first",
        "## Remaining work",
        "# existing",
        "# rest",
        "return x  # ... existing code ...",
        "The existing code ...",
        "# code",
        "#",
        "--- a/file",
        "",
    ],
)
def test_an_ordinary_line_is_not(line):
    assert placeholder_lines("a\n", f"a\n{line}\n") == []


def test_a_placeholder_of_the_original_may_stay():
    assert placeholder_lines("  # ... existing code ...\n", "# ... existing code ...\nx\n") == []
