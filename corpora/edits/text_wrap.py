def split_words(text):
    words = []
    current = ""
    for letter in text:
        if letter.isspace():
            if current:
                words.append(current)
            current = ""
        else:
            current += letter
    if current:
        words.append(current)
    return words


def wrap(text, width=79):
    lines = []
    line = ""
    for word in split_words(text):
        if len(line) + len(word) > width:
            lines.append(line)
            line = word
        elif line:
            line += " " + word
        else:
            line = word
    lines.append(line)
    return lines


def justify(line, width):
    words = split_words(line)
    if len(words) < 2:
        return line
    gaps = len(words) - 1
    spaces = width - sum(len(word) for word in words)
    base, extra = divmod(spaces, gaps)
    result = ""
    for index, word in enumerate(words[:-1]):
        result += word + " " * (base + (1 if index < extra else 0))
    return result + words[-1]
