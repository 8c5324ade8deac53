import re
from collections import Counter
from pathlib import Path

WORD = re.compile(r"[a-z']+")
MAX_WORDS = 20


def read_words(path):
    text = Path(path).read_text(encoding="utf-8")
    return WORD.findall(text.lower())


def count_words(path):
    words = read_words(path)
    return Counter(words)


def longest_word(path):
    words = read_words(path)
    return max(words, key=len)


def average_length(path):
    words = read_words(path)
    letters = sum(len(word) for word in words)
    return letters / len(words)


def show_counts(path, limit=MAX_WORDS):
    counts = count_words(path)
    for word, count in counts.most_common(limit):
        print(f"{word:20} {count}")
    print("done")


if __name__ == "__main__":
    show_counts("book.txt")
