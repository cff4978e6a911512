"""The main job on real parts. Uses only commands, HTTP and public names; imports nothing below tierstate's faces."""
