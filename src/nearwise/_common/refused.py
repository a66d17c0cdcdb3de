"""The error for what a user gave and what cannot be used."""


class Refused(ValueError):
    """What was given cannot be used; the message is a sentence for the user that says what, and why."""
