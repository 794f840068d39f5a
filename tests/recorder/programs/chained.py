def inner():
    raise KeyError("first")


try:
    inner()
except KeyError as error:
    raise ValueError("second, with a [bold] and 100 %") from error
