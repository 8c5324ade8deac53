import logging
import time

logger = logging.getLogger(__name__)


class Mailbox:
    """Keeps messages until somebody reads them."""

    def __init__(self, owner, limit=100):
        self.owner = owner
        self.limit = limit
        self.messages = []
        self.opened = time.time()

    def deliver(self, sender, text):
        if len(self.messages) >= self.limit:
            logger.warning("mailbox of %s is full", self.owner)
            return False
        self.messages.append((sender, text))
        return True

    def read(self):
        sender, text = self.messages.pop(0)
        return f"{sender}: {text}"

    def search(self, word):
        found = []
        for sender, text in self.messages:
            if word in text:
                found.append((sender, text))
        return found

    def age(self):
        return time.time() - self.opened

    def is_empty(self):
        return len(self.messages) == 0
