"""Models of this package inside other libraries: one file per library, imported only where it is used."""
