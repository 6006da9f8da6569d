import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Properties;
import java.util.TreeSet;

/** Reads texts, one a line in hexadecimal; prints what Properties finds in each, and stores of it. */
public class RoundTrip {
  public static void main(String[] words) throws Exception {
    HexFormat hex = HexFormat.of();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    StringBuilder out = new StringBuilder();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Properties found = new Properties();
      try {
        found.load(new ByteArrayInputStream(hex.parseHex(line)));
      } catch (IllegalArgumentException refused) {
        out.append("refused\n\n");
        continue;
      }
      TreeSet<String> pairs = new TreeSet<>();
      for (String key : found.stringPropertyNames()) {
        pairs.add(hexOf(hex, key) + "=" + hexOf(hex, found.getProperty(key)));
      }
      ByteArrayOutputStream stored = new ByteArrayOutputStream();
      found.store(stored, "as Azkaban does");
      out.append(String.join(" ", pairs)).append("\n");
      out.append(hex.formatHex(stored.toByteArray())).append("\n");
    }
    System.out.print(out);
  }

  private static String hexOf(HexFormat hex, String text) {
    StringBuilder out = new StringBuilder();
    for (char unit : text.toCharArray()) { // by its units: a lone surrogate is no character
      out.append(hex.toHexDigits(unit));
    }
    return out.toString();
  }
}
